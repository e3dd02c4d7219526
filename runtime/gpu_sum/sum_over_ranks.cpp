// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/sum_over_ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/staged_reducer.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

/// What every rank tells the others.
struct Facts {
  char bus_id[32] = {};
  char host[96] = {};       ///< as NCCL tells hosts apart
  char unusable[128] = {};  ///< why there is no NCCL; empty if there is
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

template <class Item>
std::vector<Item> allgather(Group& group, const Item& own, const char* what) {
  const int ranks = group.topology().size;
  std::vector<Item> all(static_cast<std::size_t>(ranks));
  const auto segments = collectives::allgather_segments(
      ranks, reinterpret_cast<const std::byte*>(&own), reinterpret_cast<std::byte*>(all.data()),
      sizeof own, DType::uint8);
  const auto describe = [&] { return std::string(what); };
  group.engine().run({.kind = collectives::Kind::allgather,
                      .segments = segments,
                      .describe = describe,
                      .verb = collectives::Verb::sum_of_gpus});
  return all;
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

/// Why the GPUs of the nodes cannot sum by themselves; empty if they can.
std::string obstacle(const collectives::Topology& topology, const std::vector<Facts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].unusable[0] == '\0') continue;
    return name_of(topology, static_cast<int>(rank)) + ": " + facts[rank].unusable;
  }
  for (const collectives::NodeRanks node : topology.nodes) {
    if (node.size() == topology.nodes.front().size()) continue;
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

/// True if NCCL is to be used. All ranks decide alike, from the same facts.
bool uses_nccl(Group& group, const std::vector<Facts>& facts) {
  const auto& topology = group.topology();
  const std::string& path = group.settings().gpu_path;
  const bool alone = topology.nodes.size() == facts.size();
  if (path == "host" || alone) return false;
  if (path == "auto" && group.settings().reproducible) return false;
  const std::string why = obstacle(topology, facts);
  if (why.empty()) return true;
  const int sharing = find_shared(topology, facts).first;
  const bool is_mistake = sharing >= 0 && !facts[sharing].is_slice;
  if (path == "nccl" || is_mistake) throw_cannot_sum(why, topology.rank == 0);
  if (topology.rank == 0) {
    group.log().warn("values on GPUs are summed by way of the host: " + why +
                     " (TUTTI_GPU_PATH=host says that this is meant)");
  }
  return false;
}

std::unique_ptr<NodeCollectives> join_node(Group& group, NodeLibrary& library, int device) {
  const auto& topology = group.topology();
  NodeId own{};
  tutti::agree(group.engine(), [&] {
    if (topology.local_rank == 0) own = library.make_id();
  });
  const auto ids = allgather(group, own, "exchange of the nodes' NCCL ids");
  const auto what = [] { return std::string("connection of the node's GPUs"); };
  return library.join(ids[topology.local_ranks().front()], topology.local_rank,
                      topology.local_size(), device, group.settings().timeout,
                      [&group, what] { group.engine().check_peers(what); });
}

/// `device` is this rank's. Collective. Errors, on all ranks alike: invalid_argument.
std::unique_ptr<Reducer> make_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device) {
  NodeLibrary& library = gpus->accelerator().node_library();
  Facts own;
  const DeviceInfo info = gpus->accelerator().info(device);
  copy_text(own.bus_id, info.bus_id);
  own.is_slice = info.is_slice;
  copy_text(own.host, host_of(group.topology()));
  copy_text(own.unusable, library.unusable());
  const auto facts = allgather(group, own, "exchange of what GPUs the ranks have");
  std::unique_ptr<NodeCollectives> node;
  if (uses_nccl(group, facts)) node = join_node(group, library, device);
  std::unique_ptr<Reducer> reducer;
  tutti::agree(group.engine(), [&] {
    reducer = std::make_unique<StagedReducer>(group, std::move(gpus), device, std::move(node));
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
Tensor new_bucket(Group& group, std::size_t bytes, Device device) {
  try {
    return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::uint8, device);
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

void SumOverRanks::allreduce(const std::shared_ptr<Gpus>& gpus, int device,
                             std::span<const Part> parts) {
  if (device_ != device) {
    reducer_.reset();
    reducer_ = make_reducer(*group_, gpus, device);
    device_ = device;
  }
  reducer_->allreduce(parts);
}

/// The caller's memory cannot be padded, so the sum is made in a copy of it.
void SumOverRanks::allreduce(const ConstTensorView& input, const TensorView& output) {
  Group& group = *group_;
  require(group, input, output);
  const auto& topology = group.topology();
  const std::size_t unit = kGrain * topology.largest_node();
  const std::size_t bytes = (input.size_bytes() + unit - 1) / unit * unit;
  const Tensor bucket = new_bucket(group, bytes, input.device());
  announce(group, input);
  if (topology.size == 1) return output.copy_from(input);
  const auto gpus = require_gpus("allreduce", input.device());
  auto* data = const_cast<std::byte*>(bucket.bytes());
  const Part part{data, bytes / size_of(input.dtype()), input.dtype()};
  try {
    gpus->copy(data, input.device(), input.bytes(), input.device(), input.size_bytes());
    if (bytes > 0) allreduce(gpus, input.device().index, {&part, 1});
    gpus->copy(output.bytes(), output.device(), data, output.device(), output.size_bytes());
  } catch (const Error& error) {
    group.engine().fail(error);
  }
}

}  // namespace tutti::gpus
