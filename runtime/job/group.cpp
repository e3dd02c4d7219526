// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/group.hpp"

#include <exception>
#include <optional>
#include <string>
#include <unistd.h>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "runtime/base/tensor_bytes.hpp"
#include "runtime/gpu/tensor_ops.hpp"
#include "runtime/job/stop_flag.hpp"
#include "runtime/job/tuning_file.hpp"

namespace tutti {

namespace {

/// Returns a cache size from sysconf, or a typical one if that is unknown, as in some containers.
std::size_t cache_bytes(int level, std::size_t usual) {
  const long bytes = sysconf(level);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : usual;
}

collectives::CacheSizes cache_sizes() {
  return {.level1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, std::size_t{32} << 10),
          .last_level = cache_bytes(_SC_LEVEL3_CACHE_SIZE, std::size_t{32} << 20),
          .level2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, std::size_t{1} << 20)};
}

collectives::NodeMemory node_memory(const GroupParts& parts) {
  collectives::NodeMemory memory;
  memory.local_rank = parts.topology.local_rank;
  memory.arena_bytes = parts.arena->reserved_bytes();
  memory.reader = parts.reader.get();
  memory.pace = parts.pace;
  memory.processors = parts.processors;
  memory.peers = parts.node;
  return memory;
}

}  // namespace

collectives::Tuning choose_tuning(const collectives::Topology& topology, const Settings& settings) {
  return collectives::Tuning::choose(topology, settings, cache_sizes());
}

Group::Group(GroupParts parts) : parts_(std::move(parts)) {
  engine_ = std::make_unique<collectives::Engine>(
      node_memory(parts_), parts_.topology, parts_.settings, parts_.transport.get(),
      [this](std::size_t bytes) { return parts_.scratch->allocate(bytes); }, parts_.tuning);
  adopt_known_paths();
  warn_of_closed_paths();
  engine_->watch(stop_flag());
  gpus::set_timeout(parts_.settings.timeout);
  observer_ =
      std::make_unique<NodeObserver>(engine_->memory(), engine_->topology(), parts_.processes);
  engine_->waiter().set_observer(observer_.get());
  reports_ = std::make_unique<Reports>(*engine_, std::move(parts_.reports));
  async_ = std::make_unique<AsyncCalls>(*engine_, parts_.settings);
  async_reduces_ = std::make_unique<AsyncReduces>(*engine_, *async_);
  parts_.arena->add_user(this, [&engine = *engine_] { return engine.failed(); });
}

/// Warns if TUTTI_ALGORITHMS requests fetching, but the ranks of this node cannot read each other,
/// or swapped slots where there are not two ranks on one node.
void Group::warn_of_closed_paths() const {
  using collectives::Inputs;
  using collectives::Results;
  const bool can_swap = parts_.topology.local_size() == 2 && parts_.topology.num_nodes() == 1;
  if (parts_.tuning.inputs == Inputs::swapped && !can_swap && parts_.topology.rank == 0) {
    log().warn("TUTTI_ALGORITHMS=" + parts_.settings.algorithms +
               ": slots are swapped by two ranks on one node; inputs are staged");
  }
  const bool fetches =
      parts_.tuning.inputs == Inputs::fetched || parts_.tuning.results == Results::fetched;
  const bool has_peers = parts_.topology.local_size() > 1;
  if (!fetches || !has_peers || parts_.reader != nullptr || parts_.topology.local_rank != 0) return;
  log().warn("TUTTI_ALGORITHMS=" + parts_.settings.algorithms +
             ": nothing is fetched here; inputs are staged. " + parts_.why_unreadable);
}

void Group::adopt_known_paths() {
  const std::size_t left_out = engine_->adopt(parts_.known.paths);
  if (left_out == 0 || parts_.topology.local_rank != 0) return;
  log().warn("TUTTI_TUNING=" + parts_.settings.tuning + ": " + std::to_string(left_out) + " of " +
             std::to_string(parts_.known.paths.size()) +
             " rows take ways that are closed here, so their calls keep to the static choice" +
             (parts_.why_unreadable.empty() ? "" : ": " + parts_.why_unreadable));
}

/// Called in a forked process: the group's threads and messages belong to the parent.
void Group::leak() {
  static_cast<void>(reports_.release());
  static_cast<void>(observer_.release());
  static_cast<void>(async_reduces_.release());
  static_cast<void>(async_.release());
  static_cast<void>(engine_.release());
  static_cast<void>(new GroupParts(std::move(parts_)));
}

Group::~Group() {
  if (is_forked()) {
    leak();
    return;
  }
  async_->close();
  reports_->finish();
  observer_.reset();
  engine_->waiter().set_observer(nullptr);
  parts_.arena->remove_user(this);
  leave();
}

/// Leaves the group. After a failure, a peer that was stopped may resume in the middle of a call,
/// so the memory that it may read or write stays mapped until the process ends.
void Group::leave() {
  if (engine_->failed()) {
    collectives::leak_until_exit(parts_.mappings);
    collectives::leak_until_exit(parts_.arena);
    collectives::leak_until_exit(parts_.numbers);  // no other group takes over the messages
    return;
  }
  engine_->leave(std::uncaught_exceptions() > 0);
  parts_.scratch->retire(static_cast<std::uint32_t>(parts_.node.size()));
}

GroupParts Group::parts_for(const std::vector<int>& members, int number, bool has_consumers) const {
  GroupParts parts;
  parts.topology = topology().of_group(members);
  parts.topology.group = number;
  parts.local_rank_in_job = local_rank_in_job();
  parts.settings = parts_.settings;
  parts.tuning = choose_tuning(parts.topology, parts.settings);
  parts.arena = parts_.arena;
  parts.mappings = parts_.mappings;
  parts.peers = parts_.peers;
  parts.known = parts_.known.for_ranks(parts.topology.local_size());
  std::vector<int> peers;
  for (const int rank : parts.topology.local_ranks()) {
    const int peer = topology().local_rank_of(members[rank]);
    peers.push_back(peer);
    parts.node.push_back(parts_.node[peer]);
    parts.processes.push_back(parts_.processes.empty() ? 0 : parts_.processes[peer]);
  }
  if (peers.size() > 1) {
    parts.why_unreadable = parts_.why_unreadable;
    if (parts_.reader != nullptr) parts.reader = parts_.reader->for_group(parts.topology, peers);
  }
  if (parts.topology.num_nodes() > 1) parts.why_not_async = parts_.why_not_async;
  parts.pace = parts_.pace;
  parts.processors = parts_.processors;
  parts.reports = reports_->targets_of_group();
  parts.numbers = parts_.numbers;
  const bool is_wide =
      has_consumers || parts.topology.num_nodes() > 1 || parts.tuning.has_wide_payloads();
  parts.scratch = Scratch::another(parts.arena, is_wide);
  return parts;
}

std::unique_ptr<collectives::Transport> Group::transport_for(const std::vector<int>& members,
                                                             const GroupParts& parts) const {
  if (parts_.transport == nullptr || members.size() == 1) return nullptr;
  return parts_.transport->for_group(members, parts.topology.group, parts.topology.num_nodes());
}

AsyncCalls& Group::async() {
  require_own_process();
  if (has_engine()) engine_->messages().complete();
  if (makes_async_calls_) return *async_;
  if (!parts_.why_not_async.empty()) {
    throw Error(ErrorCode::invalid_argument, "asynchronous calls: " + parts_.why_not_async);
  }
  makes_async_calls_ = true;
  return *async_;
}

void Group::copy(const TensorView& target, const ConstTensorView& source, std::size_t together) {
  const auto on_gpu = [](Device device) { return device.kind == DeviceKind::gpu; };
  if (!on_gpu(target.device()) && !on_gpu(source.device()))
    return copy_on_host(target, source, together);
  gpus::copy(target, source, [&](const std::function<bool()>& ready, const std::string& what) {
    engine().await(ready, [&] { return what; });
  });
}

/// Uses a reduction instead of memcpy, which would consider each range small and write it to the
/// caches.
void Group::copy_on_host(const TensorView& target, const ConstTensorView& source,
                         std::size_t together) {
  using collectives::WritePolicy;
  constexpr std::size_t kLeastStreamed = std::size_t{16} << 10;
  if (!has_engine()) return target.copy_from(source);  // its threads are busy
  collectives::Workers& workers = engine_->workers();
  const std::byte* from = source.bytes();
  std::byte* to = target.bytes();
  const bool overlap = from < to + target.size_bytes() && to < from + source.size_bytes();
  const DType dtype = target.dtype();
  const WritePolicy stores = engine_->tuning().output_writes(
      std::max(together, target.size_bytes()), topology().local_size());
  const bool streams = stores == WritePolicy::streaming && dtype == source.dtype() &&
                       target.size_bytes() >= kLeastStreamed;
  if ((!workers.splits(target.size_bytes()) && !streams) || !(target.shape() == source.shape()) ||
      overlap) {
    return target.copy_from(source);
  }
  if (dtype == source.dtype()) {
    workers.reduce({ReduceOp::sum, dtype, dtype}, std::span(&from, 1), std::span(&to, 1),
                   target.count(), stores);
    if (stores == WritePolicy::streaming) collectives::streaming_fence();
    return;
  }
  workers.over(target.count(), size_of(dtype), [&](std::size_t first, std::size_t count) {
    const Shape shape{static_cast<std::int64_t>(count)};
    const TensorView part(to + first * size_of(dtype), shape, dtype);
    part.copy_from(ConstTensorView(from + first * size_of(source.dtype()), shape, source.dtype()));
  });
}

void Group::sum(std::span<const std::byte* const> values, const TensorView& total) {
  const DType dtype = total.dtype();
  const auto stores = engine_->tuning().output_writes(total.size_bytes(), topology().local_size());
  std::byte* to = total.bytes();
  engine_->workers().reduce({ReduceOp::sum, dtype, dtype}, values, std::span(&to, 1), total.count(),
                            stores);
  collectives::streaming_fence();  // peers may read the target
}

void Group::fail_node(ErrorCode code, const std::string& text) const {
  observer_->fail_node(code, name_of(topology(), topology().rank) + ": " + text);
}

std::vector<int> Group::ended_local_ranks() const {
  std::vector<int> ended;
  for (const int rank : topology().local_ranks()) {
    const bool is_own = rank == topology().rank;
    if (!is_own && observer_->is_gone(topology().local_rank_of(rank))) ended.push_back(rank);
  }
  return ended;
}

Tensor Group::allocate(Shape shape, DType dtype) {
  require_own_process();  // here the list of free memory is only a copy
  const std::optional<std::size_t> bytes = bytes_of(shape, dtype);
  if (!bytes) {
    throw Error(ErrorCode::out_of_memory,
                "node-shared memory: no address space has room for shape " + to_string(shape) +
                    " of " + to_string(dtype));
  }
  std::byte* memory = parts_.arena->allocate(*bytes);
  std::shared_ptr<void> owner(
      memory, [arena = parts_.arena](void* freed) { arena->free(static_cast<std::byte*>(freed)); });
  return Tensor::adopt(std::move(owner), memory, shape, dtype);
}

}  // namespace tutti
