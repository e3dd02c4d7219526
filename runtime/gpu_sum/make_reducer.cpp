// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/make_reducer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/allgather.hpp"
#include "runtime/gpu_sum/faster_way.hpp"
#include "runtime/gpu_sum/node_reducer.hpp"
#include "runtime/gpu_sum/peer_reducer.hpp"
#include "runtime/gpu_sum/staged_reducer.hpp"
#include "runtime/job/agree.hpp"

namespace tutti::gpus {

namespace {

/// A rank's facts about its GPU, which it tells the others.
struct Facts {
  char bus_id[32] = {};
  char host[96] = {};       ///< name of the host, by which NCCL tells hosts apart
  char unusable[128] = {};  ///< the reason why there is no NCCL; empty if there is
  bool is_slice = false;    ///< the GPU is a slice of one
  bool has_peers = false;   ///< other processes may use its memory
  /// Ids of NCCL's communicators, of the node and of all ranks, that were joined before; 0: none.
  std::uint64_t node_communicator = 0;
  std::uint64_t all_communicator = 0;
};

constexpr std::size_t kMostIdle = 3;  // communicators that no group uses

/// The name of a rank's host to NCCL, which takes two ranks for neighbours if it is equal.
std::string host_of(const collectives::Topology& topology) {
  const char* replaced = std::getenv("NCCL_HOSTID");
  return replaced != nullptr ? replaced : topology.names->host_of(topology.rank);
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

/// The ways to sum: by the hosts; by kernels that read the GPUs of all ranks; by NCCL in each node,
/// or over all nodes.
enum class Way { host, peers, node, all };

/// The two lowest ranks with one GPU between them, of those that NCCL would join in a node or over
/// all nodes. {-1, -1} if there are none.
std::pair<int, int> find_shared(Way way, const collectives::Topology& topology,
                                const std::vector<Facts>& facts) {
  std::map<std::tuple<int, std::string, std::string>, int> first;  // rank on each GPU
  for (int rank = 0; rank < topology.size; ++rank) {
    const Facts& own = facts[static_cast<std::size_t>(rank)];
    const int node = way == Way::all ? 0 : topology.node_of(rank);
    const auto [found, is_new] = first.try_emplace({node, own.host, own.bus_id}, rank);
    if (!is_new) return {found->second, rank};
  }
  return {-1, -1};
}

struct ChosenWay {
  Way way = Way::host;
  std::string why;  ///< the reason why NCCL does not sum, if it was to; else empty
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
  if (const auto [one, other] = find_shared(way, topology, facts); one >= 0) {
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

/// True if kernels may read the GPUs of all ranks, as far as that is known before they try.
bool may_read_peers(const collectives::Topology& topology, const std::vector<Facts>& facts) {
  return peer_obstacle(topology).empty() && std::ranges::all_of(facts, [](const Facts& one) {
           return one.has_peers && !one.is_slice;
         });
}

/// The way to sum. All ranks choose the same, from the same facts.
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
  const int sharing = find_shared(Way::node, topology, facts).first;
  if (sharing >= 0 && !facts[sharing].is_slice) throw_cannot_sum(why, topology.rank == 0);
  if (topology.rank == 0) {
    group.log().warn("values on GPUs are summed by way of the host: " + why +
                     " (TUTTI_GPU_PATH=host says that this is meant)");
  }
  return Way::host;
}

/// Makes a reducer by peers. Null, with the reason in `why_not`, if one GPU cannot reach the memory
/// of another.
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

/// The ranks that one communicator of NCCL joins, this one among them.
std::vector<int> joined_ranks(const collectives::Topology& topology, Way way) {
  if (way != Way::all) return topology.local_ranks().list();
  std::vector<int> all(static_cast<std::size_t>(topology.size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// The name of this rank's communicators. It has the rank, because threads that are ranks share
/// their process's GPUs.
std::string name_of_communicator(const collectives::Topology& topology) {
  return "nccl of rank " + std::to_string(topology.job_rank());
}

std::optional<KeptForRanks::Item> find_joined(const Group& group, Gpus& gpus, int device, Way way) {
  const std::vector<int> ranks = joined_ranks(group.topology(), way);
  return gpus.kept(device).find(name_of_communicator(group.topology()),
                                job_ranks(group.topology(), ranks),
                                [](const std::shared_ptr<void>& made) {
                                  return !static_cast<NodeCollectives*>(made.get())->failure();
                                });
}

std::uint64_t kept_by(const Facts& facts, Way way) {
  return way == Way::all ? facts.all_communicator : facts.node_communicator;
}

/// True if the ranks have joined such communicators before. All ranks find the same.
bool have_joined(const collectives::Topology& topology, const std::vector<Facts>& facts, Way way) {
  for (const collectives::NodeRanks node : topology.nodes) {
    const std::uint64_t first = kept_by(facts[way == Way::all ? 0 : node[0]], way);
    for (const int rank : node) {
      if (first == 0 || kept_by(facts[rank], way) != first) return false;
    }
  }
  return true;
}

std::shared_ptr<NodeCollectives> join(Group& group, Gpus& gpus, int device, Way way,
                                      const Patience& patience) {
  const auto& topology = group.topology();
  NodeLibrary& library = gpus.accelerator().node_library();
  const std::vector<int> ranks = joined_ranks(topology, way);
  const auto own = static_cast<int>(std::ranges::find(ranks, topology.rank) - ranks.begin());
  NodeId id{};
  tutti::agree(group.engine(), [&] {
    if (own == 0) id = library.make_id();
  });
  const auto ids = allgather(group, id, "exchange of NCCL ids");
  id = ids[static_cast<std::size_t>(ranks.front())];
  std::shared_ptr<NodeCollectives> made =
      library.join(id, own, static_cast<int>(ranks.size()), device, patience);
  const std::string name = name_of_communicator(topology);
  for (const auto& idle : gpus.kept(device).take_idle(name, kMostIdle)) {
    static_cast<NodeCollectives*>(idle.get())->part();
  }
  const std::uint64_t digest = Digest().add(std::string_view(id.data(), id.size())).value();
  gpus.kept(device).add({name, job_ranks(topology, ranks), digest, made});
  return made;
}

/// The facts of all ranks, and the items that this rank keeps of the communicators that it has told
/// of.
struct Told {
  std::vector<Facts> facts;
  std::optional<KeptForRanks::Item> node;
  std::optional<KeptForRanks::Item> all;
};

struct FirstSum {
  const Told& told;
  std::size_t bytes;
};

/// The communicator that these ranks have joined before, or a new one. If it has been aborted since
/// the ranks told that they have it, its next sum throws. Collective.
std::shared_ptr<NodeCollectives> communicator_for(Group& group, Gpus& gpus, int device, Way way,
                                                  const Told& told) {
  if (have_joined(group.topology(), told.facts, way)) {
    const auto& kept = way == Way::all ? told.all : told.node;
    return std::static_pointer_cast<NodeCollectives>(kept->made);
  }
  return join(group, gpus, device, way, patience_of(group, "connection of the GPUs"));
}

Told exchange_facts(Group& group, Gpus& gpus, int device) {
  Accelerator& accelerator = gpus.accelerator();
  Facts own;
  const DeviceInfo info = accelerator.info(device);
  copy_text(own.bus_id, info.bus_id);
  own.is_slice = info.is_slice;
  copy_text(own.host, host_of(group.topology()));
  copy_text(own.unusable, accelerator.node_library().unusable());
  own.has_peers = accelerator.peer_access() != nullptr;
  Told told{
      {}, find_joined(group, gpus, device, Way::node), find_joined(group, gpus, device, Way::all)};
  if (told.node) own.node_communicator = told.node->id;
  if (told.all) own.all_communicator = told.all->id;
  told.facts = allgather(group, own, "exchange of what GPUs the ranks have");
  return told;
}

/// Makes a reducer by NCCL or by the hosts.
std::unique_ptr<Reducer> make_for(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                  Way way, const Told& told) {
  std::shared_ptr<NodeCollectives> node;
  if (way != Way::host) node = communicator_for(group, *gpus, device, way, told);
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

/// True if NCCL may sum over all nodes although the settings do not ask for it.
bool may_take_all(Group& group, const std::vector<Facts>& facts) {
  return group.settings().gpu_path == "auto" && !group.settings().reproducible &&
         group.topology().num_nodes() > 1 && obstacle(Way::all, group.topology(), facts).empty();
}

/// The communicator of NCCL that joins all ranks. Null, with the reason, on all ranks alike if it
/// cannot be made.
std::shared_ptr<NodeCollectives> try_to_join_all(Group& group, Gpus& gpus, int device,
                                                 const Told& told, std::string& why_not) {
  if (have_joined(group.topology(), told.facts, Way::all)) {
    return std::static_pointer_cast<NodeCollectives>(told.all->made);
  }
  std::shared_ptr<NodeCollectives> all;
  try {
    all = join(group, gpus, device, Way::all, patience_of_trial(group));
  } catch (const Error& error) {
    if (group.failed()) throw;
    why_not = error.what();
  }
  const char is_there = all == nullptr ? 0 : 1;
  const auto on_ranks = allgather(group, is_there, "connection of the GPUs of all nodes");
  const auto absent = std::ranges::find(on_ranks, 0);
  if (absent == on_ranks.end()) return all;
  if (all != nullptr) {
    abort_beside(all);
    gpus.kept(device).forget(all.get());
  }
  why_not = "NCCL does not connect all nodes: " +
            name_of(group.topology(), static_cast<int>(absent - on_ranks.begin())) +
            (why_not.empty() ? "" : ": " + why_not);
  return nullptr;
}

/// Returns `staged`, or a reducer by NCCL over all nodes if that is possible and takes less time.
std::unique_ptr<Reducer> faster_of(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                   std::unique_ptr<Reducer> staged, const FirstSum& first) {
  std::string text;
  auto all = try_to_join_all(group, *gpus, device, first.told, text);
  bool is_nccl = false;
  if (all != nullptr) {
    try {
      FasterWay found = find_faster_way(group, gpus, device, *staged, all, first.bytes);
      is_nccl = found.is_nccl;
      text = std::move(found.text);
    } catch (const Error& error) {  // on all ranks alike: no memory for a trial
      if (group.failed()) throw;
      text = error.what();
    }
  }
  if (group.topology().rank == 0) group.log().write(LogLevel::info, text);
  if (!is_nccl) return staged;
  std::unique_ptr<Reducer> reducer;
  tutti::agree(group.engine(), [&] {
    reducer = std::make_unique<NodeReducer>(group, gpus, device, std::move(all));
  });
  return reducer;
}

std::unique_ptr<Reducer> choose_reducer(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                        std::size_t bytes) {
  const Told told = exchange_facts(group, *gpus, device);
  const std::vector<Facts>& facts = told.facts;
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
  reducer = make_for(group, gpus, device, choice.way, told);
  if (!may_take_all(group, facts)) return reducer;
  return faster_of(group, gpus, device, std::move(reducer), {told, bytes});
}

}  // namespace

std::unique_ptr<Reducer> make_reducer(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                      std::size_t bytes) {
  auto reducer = choose_reducer(group, gpus, device, bytes);
  if (group.topology().rank == 0) {
    group.log().write(LogLevel::info, "values on GPUs are summed " + reducer->describe());
  }
  return reducer;
}

}  // namespace tutti::gpus
