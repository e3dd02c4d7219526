// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/make_reducer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "runtime/gpu_sum/allgather.hpp"
#include "runtime/gpu_sum/node_reducer.hpp"
#include "runtime/gpu_sum/peer_reducer.hpp"
#include "runtime/gpu_sum/staged_reducer.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

/// Each rank's facts about its GPU, which it tells the others.
struct Facts {
  char bus_id[32] = {};
  char host[96] = {};       ///< as NCCL tells hosts apart
  char unusable[128] = {};  ///< why there is no NCCL; empty if there is
  bool is_slice = false;    ///< of a GPU
  bool has_peers = false;   ///< other processes may use its memory
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

/// Who sums: the hosts; kernels that read the GPUs of all ranks; NCCL, in each node or over all.
enum class Way { host, peers, node, all };

struct ChosenWay {
  Way way = Way::host;
  std::string why;  ///< why NCCL does not sum, if it was to; else empty
};

/// The reason why NCCL cannot sum in this way; empty if it can.
std::string obstacle(Way way, const collectives::Topology& topology,
                     const std::vector<Facts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].unusable[0] == '\0') continue;
    return name_of(topology, static_cast<int>(rank)) + ": " + facts[rank].unusable;
  }
  for (const collectives::NodeRanks node : topology.nodes) {
    if (way == Way::all || node.size() == topology.nodes.front().size()) continue;
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

/// Whether kernels may read the GPUs of all ranks, as far as that is known before they try.
bool may_read_peers(const collectives::Topology& topology, const std::vector<Facts>& facts) {
  return peer_obstacle(topology).empty() && std::ranges::all_of(facts, [](const Facts& one) {
           return one.has_peers && !one.is_slice;
         });
}

/// All ranks decide alike, from the same facts.
ChosenWay choose(Group& group, const std::vector<Facts>& facts) {
  const auto& topology = group.topology();
  const std::string& path = group.settings().gpu_path;
  const Way way = path == "nccl-all" ? Way::all : Way::node;
  const bool alone = topology.nodes.size() == facts.size() && way == Way::node;
  if (path == "host" || alone) return {};
  if (group.settings().reproducible) {
    if (path == "auto") return {};
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_REPRODUCIBLE=1 with TUTTI_GPU_PATH=" + path +
                    ": NCCL adds in an order of its own, which depends on the layout; take auto or "
                    "host, whose sums have the same bits for every layout",
                ErrorScope::agreed, topology.rank == 0);
  }
  const std::string why = obstacle(way, topology, facts);
  if (why.empty()) return {way, {}};
  if (path != "auto") throw_cannot_sum(why, topology.rank == 0);
  return {may_read_peers(topology, facts) ? Way::peers : Way::host, why};
}

/// The way to sum if neither NCCL nor kernels can. Two ranks on one GPU may be a mistake.
Way fall_back(Group& group, const std::vector<Facts>& facts, const std::string& why) {
  const auto& topology = group.topology();
  const int sharing = find_shared(topology, facts).first;
  if (sharing >= 0 && !facts[sharing].is_slice) throw_cannot_sum(why, topology.rank == 0);
  if (topology.rank == 0) {
    group.log().warn("values on GPUs are summed by way of the host: " + why +
                     " (TUTTI_GPU_PATH=host says that this is meant)");
  }
  return Way::host;
}

/// Null, and then says why, if one GPU cannot reach the memory of another.
std::unique_ptr<Reducer> try_peers(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                   std::string& why_not) {
  try {
    return make_peer_reducer(group, gpus, device);
  } catch (const Error& error) {
    if (!error.recoverable()) throw;
    why_not = error.what();
    return nullptr;
  }
}

std::unique_ptr<NodeCollectives> join(Group& group, NodeLibrary& library, int device, Way way) {
  const auto& topology = group.topology();
  const bool joins_all = way == Way::all;
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
  own.has_peers = accelerator.peer_access() != nullptr;
  return allgather(group, own, "exchange of what GPUs the ranks have");
}

/// NCCL or the hosts.
std::unique_ptr<Reducer> make_for(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                  Way way) {
  std::unique_ptr<NodeCollectives> node;
  if (way != Way::host) node = join(group, gpus->accelerator().node_library(), device, way);
  std::unique_ptr<Reducer> reducer;
  tutti::agree(group.engine(), [&] {
    const bool sums_all = way == Way::all || group.topology().num_nodes() == 1;
    if (node != nullptr && sums_all) {
      reducer = std::make_unique<NodeReducer>(group, gpus, device, std::move(node));
    } else {
      reducer = std::make_unique<StagedReducer>(group, gpus, device, std::move(node));
    }
  });
  return reducer;
}

std::unique_ptr<Reducer> choose_reducer(Group& group, const std::shared_ptr<Gpus>& gpus,
                                        int device) {
  const auto facts = exchange_facts(group, gpus->accelerator(), device);
  const bool by_peers = group.settings().gpu_path == "peers";
  ChosenWay choice = by_peers ? ChosenWay{Way::peers, {}} : choose(group, facts);
  std::unique_ptr<Reducer> reducer;
  if (by_peers) {
    reducer = make_peer_reducer(group, gpus, device);
  } else if (choice.way == Way::peers) {
    std::string why_not;
    reducer = try_peers(group, gpus, device, why_not);
    if (reducer == nullptr) choice.why += "; nor do kernels that read all GPUs: " + why_not;
  }
  if (reducer == nullptr && !choice.why.empty()) {
    choice.way = fall_back(group, facts, choice.why);
  } else if (!choice.why.empty() && group.topology().rank == 0) {
    group.log().warn("values on GPUs are summed " + reducer->describe() + ": " + choice.why +
                     " (TUTTI_GPU_PATH=peers says that this is meant)");
  }
  if (reducer != nullptr) return reducer;
  return make_for(group, gpus, device, choice.way);
}

}  // namespace

std::unique_ptr<Reducer> make_reducer(Group& group, const std::shared_ptr<Gpus>& gpus, int device) {
  auto reducer = choose_reducer(group, gpus, device);
  if (group.topology().rank == 0) {
    group.log().write(LogLevel::info, "values on GPUs are summed " + reducer->describe());
  }
  return reducer;
}

}  // namespace tutti::gpus
