// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/sum_over_ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/allgather.hpp"
#include "runtime/gpu_sum/node_reducer.hpp"
#include "runtime/gpu_sum/peer_reducer.hpp"
#include "runtime/gpu_sum/staged_reducer.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

/// What every rank tells the others.
struct Facts {
  char bus_id[32] = {};
  char host[96] = {};       ///< as NCCL tells hosts apart
  char unusable[128] = {};  ///< why there is no NCCL; empty if there is
  char lacks[128] = {};     ///< why its memory is not registered; empty if it can be
  bool is_slice = false;    ///< of a GPU
};

/// NCCL takes two ranks for neighbours if this is equal.
std::string host_of(const collectives::Topology& topology) {
  const char* replaced = std::getenv("NCCL_HOSTID");
  return replaced != nullptr ? replaced : topology.names->host_of(topology.rank);
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

/// The two lowest ranks of a node with one GPU between them; none: {-1, -1}.
std::pair<int, int> find_shared(const collectives::Topology& topology,
                                const std::vector<Facts>& facts) {
  for (const collectives::NodeRanks node : topology.nodes) {
    for (std::size_t i = 0; i < node.size(); ++i) {
      for (std::size_t j = i + 1; j < node.size(); ++j) {
        const Facts& one = facts[node[i]];
        const Facts& other = facts[node[j]];
        if (std::strcmp(one.bus_id, other.bus_id) != 0) continue;
        if (std::strcmp(one.host, other.host) == 0) return {node[i], node[j]};
      }
    }
  }
  return {-1, -1};
}

/// Which GPUs sum by themselves.
enum class Span { none, node, all };

/// Why they cannot; empty if they can.
std::string obstacle(Span span, const collectives::Topology& topology,
                     const std::vector<Facts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].unusable[0] == '\0') continue;
    return name_of(topology, static_cast<int>(rank)) + ": " + facts[rank].unusable;
  }
  for (const collectives::NodeRanks node : topology.nodes) {
    if (span == Span::all || node.size() == topology.nodes.front().size()) continue;
    return "nodes of " + std::to_string(topology.nodes.front().size()) + " and of " +
           std::to_string(node.size()) + " ranks";
  }
  if (const auto [one, other] = find_shared(topology, facts); one >= 0) {
    if (facts[one].is_slice) {
      return names_of(topology, {one, other}) + " have slices of one GPU (" + facts[one].bus_id +
             "), between which NCCL does not sum";
    }
    return names_of(topology, {one, other}) + " are on one GPU (" + facts[one].bus_id +
           "), and NCCL wants a GPU per rank";
  }
  return {};
}

[[noreturn]] void throw_cannot_sum(const std::string& why, bool reporter) {
  throw Error(ErrorCode::invalid_argument,
              "the GPUs of the node's ranks cannot sum: " + why +
                  "; give each rank its own (gpu_of, CUDA_VISIBLE_DEVICES), or sum by way of the "
                  "host with TUTTI_GPU_PATH=host",
              ErrorScope::agreed, reporter);
}

/// All ranks decide alike, from the same facts.
Span choose_span(Group& group, const std::vector<Facts>& facts) {
  const auto& topology = group.topology();
  const std::string& path = group.settings().gpu_path;
  const Span span = path == "nccl-all" ? Span::all : Span::node;
  const bool alone = topology.nodes.size() == facts.size() && span == Span::node;
  if (path == "host" || alone) return Span::none;
  if (path == "auto" && group.settings().reproducible) return Span::none;
  const std::string why = obstacle(span, topology, facts);
  if (why.empty()) return span;
  const int sharing = find_shared(topology, facts).first;
  const bool is_mistake = sharing >= 0 && !facts[sharing].is_slice;
  if (path != "auto" || is_mistake) throw_cannot_sum(why, topology.rank == 0);
  if (topology.rank == 0) {
    group.log().warn("values on GPUs are summed by way of the host: " + why +
                     " (TUTTI_GPU_PATH=host says that this is meant)");
  }
  return Span::none;
}

/// Whether NCCL sums in memory that it has registered. Never without a word where it is asked for.
bool choose_registration(Group& group, Span span, const std::vector<Facts>& facts) {
  if (!group.settings().nccl_windows) return false;
  const auto& topology = group.topology();
  std::string why;
  for (std::size_t rank = 0; rank < facts.size() && why.empty(); ++rank) {
    if (facts[rank].lacks[0] == '\0') continue;
    why = name_of(topology, static_cast<int>(rank)) + ": " + facts[rank].lacks;
  }
  if (span == Span::none) why = "NCCL has no part in sums here";
  if (!why.empty() && topology.rank == 0) {
    group.log().warn("TUTTI_NCCL_WINDOWS=1 changes nothing: " + why);
  }
  return why.empty();
}

std::unique_ptr<NodeCollectives> join(Group& group, NodeLibrary& library, int device, Span span) {
  const auto& topology = group.topology();
  const bool joins_all = span == Span::all;
  const int rank = joins_all ? topology.rank : topology.local_rank;
  NodeId own{};
  tutti::agree(group.engine(), [&] {
    if (rank == 0) own = library.make_id();
  });
  const auto ids = allgather(group, own, "exchange of NCCL ids");
  const auto what = [] { return std::string("connection of the GPUs"); };
  return library.join(ids[joins_all ? 0 : topology.local_ranks().front()], rank,
                      joins_all ? topology.size : topology.local_size(), device,
                      group.settings().timeout,
                      [&group, what] { group.engine().check_peers(what); });
}

std::vector<Facts> exchange_facts(Group& group, Accelerator& accelerator, int device) {
  Facts own;
  const DeviceInfo info = accelerator.info(device);
  copy_text(own.bus_id, info.bus_id);
  own.is_slice = info.is_slice;
  copy_text(own.host, host_of(group.topology()));
  copy_text(own.unusable, accelerator.node_library().unusable());
  copy_text(own.lacks, accelerator.node_library().lacks_registration());
  return allgather(group, own, "exchange of what GPUs the ranks have");
}

/// `device` is this rank's. Collective. Errors, on all ranks alike: invalid_argument.
std::unique_ptr<Reducer> make_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device) {
  if (group.settings().gpu_path == "peers") {
    return make_peer_reducer(group, std::move(gpus), device);
  }
  NodeLibrary& library = gpus->accelerator().node_library();
  const auto facts = exchange_facts(group, gpus->accelerator(), device);
  const Span span = choose_span(group, facts);
  const bool registers = choose_registration(group, span, facts);
  std::unique_ptr<NodeCollectives> node;
  if (span != Span::none) node = join(group, library, device, span);
  std::unique_ptr<Reducer> reducer;
  tutti::agree(group.engine(), [&] {
    const bool sums_all = span == Span::all || group.topology().num_nodes() == 1;
    if (node != nullptr && sums_all) {
      reducer =
          std::make_unique<NodeReducer>(group, std::move(gpus), device, std::move(node), registers);
    } else {
      reducer = std::make_unique<StagedReducer>(group, std::move(gpus), device, std::move(node),
                                                registers);
    }
  });
  if (group.topology().rank == 0) {
    group.log().write(LogLevel::info, "values on GPUs are summed " + reducer->describe());
  }
  return reducer;
}

void require(Group& group, const ConstTensorView& input, const TensorView& output) {
  std::string why;
  if (input.shape() != output.shape() || input.dtype() != output.dtype()) {
    why = "input " + to_string(input.shape()) + " " + to_string(input.dtype()) + " and output " +
          to_string(output.shape()) + " " + to_string(output.dtype()) + " must be alike";
  } else if (find_gpus() == nullptr || input.device().index >= find_gpus()->count()) {
    why = "a tensor on " + to_string(input.device()) + ", which this process has not";
  }
  if (!why.empty())
    group.engine().throw_on_all_ranks(ErrorCode::invalid_argument, "allreduce: " + why);
}

/// A rank without memory says so while the others can still refuse.
Tensor new_bucket(Group& group, const ConstTensorView& input) {
  const std::size_t unit = kGrain * group.topology().largest_node();
  const std::size_t bytes = (input.size_bytes() + unit - 1) / unit * unit;
  try {
    return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::uint8, input.device());
  } catch (const Error& error) {
    group.engine().throw_on_all_ranks(error.code(), std::string("allreduce: ") + error.what());
  }
}

/// All ranks make this call, with tensors that are alike and on GPUs.
void announce(Group& group, const ConstTensorView& input) {
  const auto describe = [&] {
    return "allreduce (sum) of " + to_string(input.shape()) + " " + to_string(input.dtype()) +
           " on a GPU";
  };
  const std::uint64_t digest =
      Digest().add(input.shape(), input.dtype()).add(std::string_view("gpu")).value();
  group.engine().run({.kind = collectives::Kind::allreduce,
                      .digest = digest,
                      .segments = {},
                      .describe = describe});
}

}  // namespace

void require_one_order(Gpus& gpus, int device, const void* user) {
  if (gpus.may_enter(device, user)) return;
  throw Error(ErrorCode::invalid_argument,
              "values of two stores on " + to_string(gpu(device)) +
                  " are summed from two threads, whose order may differ between ranks, and NCCL "
                  "would hang; make the calls of both from one thread, or sum by way of the host "
                  "with TUTTI_GPU_PATH=host");
}

void SumOverRanks::allreduce(const std::shared_ptr<Gpus>& gpus, int device,
                             std::span<const Part> parts) {
  if (device_ != device) {
    reducer_.reset();
    reducer_ = make_reducer(*group_, gpus, device);
    device_ = device;
  }
  reducer_->allreduce(parts);
}

void SumOverRanks::finish() {
  if (reducer_ != nullptr) reducer_->finish();
}

void SumOverRanks::await() {
  if (reducer_ != nullptr) reducer_->await();
}

void SumOverRanks::check() {
  if (reducer_ != nullptr) reducer_->check();
}

/// The caller's memory cannot be padded, so the sum is made in a copy of it. Counts are the same on
/// all ranks, also where another one needs no copy.
void SumOverRanks::allreduce_in(const Tensor& bucket, const std::shared_ptr<Gpus>& gpus,
                                const ConstTensorView& input, const TensorView& output) {
  const Device device = input.device();
  auto* data = const_cast<std::byte*>(bucket.bytes());
  const std::size_t padded = bucket.size_bytes() / size_of(input.dtype());
  const std::size_t count = traits(device.index).takes_inputs ? input.count() : padded;
  const Part part{data, count, input.dtype()};
  gpus->copy(data, device, input.bytes(), device, input.size_bytes());
  if (part.count > 0) allreduce(gpus, device.index, {&part, 1});
  gpus->copy(output.bytes(), device, data, device, output.size_bytes());
}

void SumOverRanks::allreduce(const ConstTensorView& input, const TensorView& output) {
  Group& group = *group_;
  require(group, input, output);
  const bool is_direct =
      traits(input.device().index).takes_inputs && output.device() == input.device();
  std::optional<Tensor> bucket;
  if (!is_direct) bucket = new_bucket(group, input);
  announce(group, input);
  if (group.topology().size == 1) return output.copy_from(input);
  const auto gpus = require_gpus("allreduce", input.device());
  const int device = input.device().index;
  try {
    if (is_direct) {
      const Part part{output.bytes(), input.count(), input.dtype(), input.bytes()};
      if (part.count > 0) allreduce(gpus, device, {&part, 1});
    } else {
      allreduce_in(*bucket, gpus, input, output);
    }
    finish();
  } catch (const Error& error) {
    group.engine().fail(error);
  }
}

}  // namespace tutti::gpus
