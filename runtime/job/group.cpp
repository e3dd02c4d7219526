// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/group.hpp"

#include <exception>
#include <unistd.h>

#include "tutti/error.hpp"

#include "collectives/leak.hpp"
#include "runtime/gpu/tensor_ops.hpp"
#include "runtime/job/stop_flag.hpp"

namespace tutti {

namespace {

/// The size from sysconf; a common one if it gives none, as in some containers.
std::size_t cache_bytes(int level, std::size_t usual) {
  const long bytes = sysconf(level);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : usual;
}

collectives::CacheSizes cache_sizes() {
  return {.level1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, std::size_t{32} << 10),
          .last_level = cache_bytes(_SC_LEVEL3_CACHE_SIZE, std::size_t{32} << 20)};
}

collectives::NodeMemory node_memory(const GroupParts& parts) {
  collectives::NodeMemory memory;
  memory.local_rank = parts.topology.local_rank;
  memory.arena_bytes = parts.arena->reserved_bytes();
  memory.reader = parts.reader.get();
  for (std::byte* arena : parts.arenas) memory.peers.push_back({arena});
  return memory;
}

}  // namespace

void allocate_slots(Arena& arena, std::size_t slot_bytes) {
  auto& control = *reinterpret_cast<collectives::ControlBlock*>(arena.data());
  const auto slot = [&] {
    return static_cast<std::uint64_t>(arena.allocate(slot_bytes) - arena.data());
  };
  control.address = reinterpret_cast<std::uintptr_t>(arena.data());
  for (auto& offset : control.stage) offset = slot();
  for (auto& offset : control.result) offset = slot();
}

collectives::Tuning choose_tuning(const collectives::Topology& topology, const Settings& settings) {
  return collectives::Tuning::choose(topology, settings, cache_sizes());
}

Group::Group(GroupParts parts) : parts_(std::move(parts)) {
  engine_ = std::make_unique<collectives::Engine>(
      node_memory(parts_), parts_.topology, parts_.settings, parts_.transport.get(),
      [arena = parts_.arena](std::size_t bytes) { return arena->allocate(bytes); }, parts_.tuning);
  adopt_known_paths();
  warn_of_unreadable();
  engine_->watch(stop_flag());
  gpus::set_timeout(parts_.settings.timeout);
  observer_ =
      std::make_unique<NodeObserver>(engine_->memory(), engine_->topology(), parts_.processes);
  engine_->set_observer(observer_.get());
  reports_ = std::make_unique<Reports>(*engine_, std::move(parts_.reports));
  async_ = std::make_unique<AsyncCalls>(*engine_, parts_.settings);
  async_reduces_ = std::make_unique<AsyncReduces>(*engine_, *async_);
}

/// What TUTTI_ALGORITHMS asks for and this node cannot do is not left out without a word.
void Group::warn_of_unreadable() const {
  using collectives::Inputs;
  using collectives::Results;
  const bool fetches =
      parts_.tuning.inputs == Inputs::fetched || parts_.tuning.results == Results::fetched;
  const bool has_peers = parts_.topology.local_size() > 1;
  if (!fetches || !has_peers || parts_.reader != nullptr || parts_.topology.local_rank != 0) return;
  log().warn("TUTTI_ALGORITHMS=" + parts_.settings.algorithms +
             ": nothing is fetched here; inputs are staged. " + parts_.why_unreadable);
}

void Group::adopt_known_paths() {
  const std::size_t left_out = engine_->adopt(parts_.known_paths);
  if (left_out == 0 || parts_.topology.local_rank != 0) return;
  log().warn("TUTTI_TUNING=" + parts_.settings.tuning + ": " + std::to_string(left_out) + " of " +
             std::to_string(parts_.known_paths.size()) +
             " rows take ways that are closed here, so their calls keep to the static choice" +
             (parts_.why_unreadable.empty() ? "" : ": " + parts_.why_unreadable));
}

/// After a failure a peer that was stopped may resume in the middle of a call: what it may still
/// read or write stays mapped until the process ends.
Group::~Group() {
  async_->close();
  async_lease_.reset();
  reports_->finish();
  observer_.reset();
  engine_->set_observer(nullptr);
  if (parts_.topology.size == 1) return;
  if (engine_->failed()) {
    collectives::leak_until_exit(
        std::make_shared<std::vector<Mapping>>(std::move(parts_.mappings)));
    collectives::leak_until_exit(parts_.arena);
  } else {
    engine_->leave(std::uncaught_exceptions() > 0);
  }
}

AsyncCalls& Group::async() {
  if (makes_async_calls_) return *async_;
  if (!parts_.why_not_async.empty()) {
    throw Error(ErrorCode::invalid_argument, "asynchronous calls: " + parts_.why_not_async);
  }
  if (parts_.lease_async && (async_lease_ = parts_.lease_async()) == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "asynchronous calls: another communicator of this process makes some, between "
                "nodes, and two threads need an MPI with MPI_THREAD_MULTIPLE; create stores from "
                "one Communicator, or destroy the other one first");
  }
  makes_async_calls_ = true;
  return *async_;
}

void Group::copy(const TensorView& target, const ConstTensorView& source) {
  const auto on_gpu = [](Device device) { return device.kind == DeviceKind::gpu; };
  if (!on_gpu(target.device()) && !on_gpu(source.device())) return copy_on_host(target, source);
  gpus::copy(target, source, [&](const std::function<bool()>& ready, const std::string& what) {
    engine().await(ready, [&] { return what; });
  });
}

/// memcpy takes each range for small and writes it to the caches; the reduction does as it is told.
void Group::copy_on_host(const TensorView& target, const ConstTensorView& source) {
  if (!has_engine()) return target.copy_from(source);  // its threads are at work
  collectives::Workers& workers = engine_->workers();
  const std::byte* from = source.bytes();
  std::byte* to = target.bytes();
  const bool overlap = from < to + target.size_bytes() && to < from + source.size_bytes();
  if (!workers.splits(target.size_bytes()) || !(target.shape() == source.shape()) || overlap) {
    return target.copy_from(source);
  }
  const DType dtype = target.dtype();
  if (dtype == source.dtype()) {
    const auto stores = engine_->tuning().output_writes(target.size_bytes(), 1);
    return workers.reduce({ReduceOp::sum, dtype, dtype}, std::span(&from, 1), std::span(&to, 1),
                          target.count(), stores);
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
  collectives::streaming_fence();  // peers may read it
}

Tensor Group::allocate(Shape shape, DType dtype) {
  std::byte* memory = parts_.arena->allocate(shape.count() * size_of(dtype));
  std::shared_ptr<void> owner(
      memory, [arena = parts_.arena](void* freed) { arena->free(static_cast<std::byte*>(freed)); });
  return Tensor::adopt(std::move(owner), memory, shape, dtype);
}

}  // namespace tutti
