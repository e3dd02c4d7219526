// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/bootstrap.hpp"

#include <algorithm>
#include <memory>
#include <random>

#include "tutti/mpi_abi.hpp"

#include "runtime/job/kernel_reader.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "runtime/mpi/reports.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/transport.hpp"

namespace tutti::mpi {

namespace {

/// What a peer needs to map a rank's arena, and to know that it is the right one.
struct ArenaHandle {
  ArenaAddress address;
  std::uint64_t nonce;
};

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;
}

std::vector<Backing> backings_for(const Settings& settings) {
  if (settings.shared_memory == "memfd" || settings.shared_memory == "none") {
    return {Backing::memfd};
  }
  if (settings.shared_memory == "shm") return {Backing::dev_shm};
  return {Backing::memfd, Backing::dev_shm};
}

/// Maps the arenas of this rank's node. A mapping counts if the peer's nonce can be read through
/// it.
bool map_node(GroupParts& parts, Backing backing, const std::vector<ArenaHandle>& handles) {
  std::vector<Mapping> mappings;
  parts.node.clear();
  for (const int rank : parts.topology.local_ranks()) {
    if (rank == parts.topology.rank) {
      parts.node.push_back(collectives::Peer::first_of(parts.arena->data()));
      continue;
    }
    try {
      mappings.push_back(
          Arena::map_peer(backing, handles[rank].address, parts.arena->reserved_bytes()));
    } catch (const Error&) {
      return false;
    }
    parts.node.push_back(collectives::Peer::first_of(mappings.back().data()));
    if (parts.node.back().control().nonce != handles[rank].nonce) return false;
  }
  parts.mappings = std::make_shared<const std::vector<Mapping>>(std::move(mappings));
  return true;
}

/// Makes this rank's arena and maps its node's; says for each rank whether that succeeded.
std::vector<int> share_memory(EarlyCollectives& ranks, GroupParts& parts, Backing backing) {
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<ArenaHandle> handles;
  std::vector<int> all_mapped;
  std::uint64_t reserve = 0;
  ranks.agree("look how much memory they have", [&] {
    handles.resize(size);
    all_mapped.resize(size);
    reserve = Arena::default_reserve(parts.settings.arena_bytes, parts.topology.local_size());
  });
  reserve = ranks.minimum("settle how much memory to reserve", reserve);
  ArenaHandle own{};
  ranks.agree("reserve node-shared memory", [&] {
    parts.arena = std::make_shared<Arena>(backing, reserve);
    own = {parts.arena->address(), random_nonce()};
    collectives::Peer::first_of(parts.arena->data()).control().nonce = own.nonce;
  });
  ranks.allgather("tell each other where their memory is", own, handles);
  int mapped = 0;
  ranks.agree("map each other's memory",
              [&] { mapped = map_node(parts, backing, handles) ? 1 : 0; });
  ranks.allgather("tell each other whether they could map it", mapped, all_mapped);
  parts.arena->unlink();
  return all_mapped;
}

/// Ranks that cannot map each other become nodes of one rank, whatever MPI says of their host.
void split_unmapped_nodes(GroupParts& parts, const std::vector<int>& mapped) {
  std::vector<std::vector<int>> nodes;
  for (const auto& ranks : parts.topology.nodes) {
    if (std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return mapped[rank] != 0; })) {
      nodes.push_back(ranks);
      continue;
    }
    for (const int rank : ranks) nodes.push_back({rank});
    if (parts.topology.rank != ranks.front()) continue;
    const collectives::Log log(parts.topology, parts.settings.log);
    log.warn(names_of(parts.topology, ranks) +
             " cannot map each other's memory and will use MPI instead");
  }
  parts.topology.set_nodes(std::move(nodes));
  if (parts.topology.local_size() < static_cast<int>(parts.node.size()) ||
      parts.topology.local_size() == 1) {
    parts.mappings.reset();
    parts.node = {collectives::Peer::first_of(parts.arena->data())};
  }
}

/// The process numbers of the node's ranks, where they mean the same in this process.
std::vector<pid_t> processes_of_node(const collectives::Topology& topology,
                                     const std::vector<RankInfo>& infos) {
  const RankInfo& own = infos[topology.rank];
  std::vector<pid_t> processes;
  for (const int local : topology.local_ranks()) {
    const bool is_near = infos[local].process_space == own.process_space && own.process_space != 0;
    processes.push_back(is_near ? static_cast<pid_t>(infos[local].process) : 0);
  }
  return processes;
}

/// What keeps this rank from reading a peer's memory, the first that it meets; empty if nothing.
std::string why_unreadable(const GroupParts& parts, const std::vector<Probe>& probes) {
  for (std::size_t i = 0; i < parts.processes.size(); ++i) {
    const int rank = parts.topology.local_ranks()[i];
    if (rank == parts.topology.rank) continue;
    const std::string why = parts.processes[i] == 0
                                ? "it is in another PID namespace (start the ranks of a host in "
                                  "one: --pid=host for a container)"
                                : read_probe(parts.processes[i], probes[rank]);
    if (why.empty()) continue;
    return "cannot read the memory of " + collectives::name_of(parts.topology, rank) + ": " + why;
  }
  return {};
}

/// Whether all ranks of a node can read each other's ordinary memory is tried, not believed: what
/// the kernel allows depends on users, on Yama and on containers.
void make_reader(EarlyCollectives& ranks, GroupParts& parts) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const auto nonce = std::make_unique<std::uint64_t>(random_nonce());
  const Probe own{.address = reinterpret_cast<std::uintptr_t>(nonce.get()), .nonce = *nonce};
  std::vector<Probe> probes(size);
  ranks.allgather("tell each other what to read", own, probes);
  ranks.agree("try to read each other's memory",
              [&] { parts.why_unreadable = why_unreadable(parts, probes); });
  const int readable = parts.why_unreadable.empty() ? 1 : 0;
  std::vector<int> all_readable(size);
  ranks.allgather("tell each other whether they could read it", readable, all_readable);
  const auto& local = parts.topology.local_ranks();
  const auto unable =
      std::find_if(local.begin(), local.end(), [&](int rank) { return all_readable[rank] == 0; });
  if (unable == local.end() && local.size() > 1) {
    parts.reader = std::make_unique<KernelReader>(parts.topology, parts.processes);
  } else if (unable != local.end() && parts.why_unreadable.empty()) {
    parts.why_unreadable = collectives::name_of(parts.topology, *unable) +
                           " cannot read the memory of others of its node";
  }
}

/// A file that differs between the ranks of a node would send them different ways.
void read_tuning(EarlyCollectives& ranks, GroupParts& parts) {
  KnownPaths known;
  ranks.agree("read the file of TUTTI_TUNING", [&] {
    known = read_known_paths(parts.settings.tuning, parts.topology.local_size());
  });
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks.size()));
  ranks.allgather("compare their files of TUTTI_TUNING", known.digest, digests);
  ranks.agree("compare their files of TUTTI_TUNING", [&] {
    if (known.digest == digests.front()) return;
    throw Error(ErrorCode::mismatch,
                "TUTTI_TUNING=" + parts.settings.tuning + ": the file of " +
                    collectives::name_of(parts.topology, ranks.rank()) +
                    " has other contents than that of rank 0; give all ranks the same file");
  });
  parts.known_paths = std::move(known.paths);
}

/// Also on one node: a wait there must let the application's own messages progress, because the
/// missing rank may be waiting for one of them.
void make_transport(EarlyCollectives& ranks, GroupParts& parts) {
  if (parts.topology.size == 1) return;
  ranks.agree("prepare their messages",
              [&] { parts.transport = std::make_unique<MpiTransport>(ranks.comm()); });
  if (parts.topology.num_nodes() > 1) parts.let_threads_call = let_threads_call;
  if (parts.topology.num_nodes() > 1 && thread_level() < ThreadLevel::serialized) {
    parts.why_not_async =
        "they are made by a thread of their own, which MPI does not allow as the program has "
        "initialised it; give MPI_Init_thread MPI_THREAD_SERIALIZED or more, or leave MPI_Init to "
        "the library";
  }
  const bool by_mpi = parts.tuning.exchange == collectives::Exchange::mpi;
  if (!by_mpi || parts.topology.num_nodes() == 1) return;
  ranks.barrier("make a communicator for each share of the data");
  parts.transport->make_lane(parts.topology.lane());
}

/// What the ranks are and how they will work together.
void log_choices(Group& group) {
  if (!group.log().writes(LogLevel::info)) return;
  const auto& topology = group.topology();
  group.log().write(LogLevel::info, std::string("version ") + TUTTI_VERSION + ", " +
                                        std::to_string(topology.size) + " ranks on " +
                                        std::to_string(topology.num_nodes()) + " nodes");
  for (const std::string& line : group.engine().tuning().table(topology)) {
    group.log().write(LogLevel::info, line);
  }
}

}  // namespace

std::shared_ptr<Group> make_world_group(const Settings& settings) {
  if (!load(settings)) return nullptr;
  ensure_initialized();
  require_launch(settings);
  auto group = make_group(calls().world(), settings);
  finalize_together();  // all ranks of the job know of each other
  return group;
}

/// What may fail on one rank alone is the body of an agree(), so that no rank waits for it.
std::shared_ptr<Group> make_group(const Comm& comm, const Settings& settings) {
  EarlyCollectives ranks(comm, settings.timeout);
  ranks.agree("look at their settings", [&] {
    require_valid(settings);
    if (ranks.size() > 1) watch_calls(settings.timeout, ranks.name());
  });
  const std::vector<RankInfo> infos = exchange_rank_infos(ranks, settings);
  require_equal_ranks(infos, ranks.rank(), [&] { return exchange_settings(ranks, settings); });

  GroupParts parts;
  std::vector<Backing> backings;
  ranks.agree("lay out their nodes", [&] {
    backings = backings_for(settings);
    parts.settings = settings;
    parts.topology = topology_of(infos, ranks.rank(), settings);
    check(calls().ranks_in_world(ranks.comm(), &parts.topology.job_ranks),
          "MPI_Group_translate_ranks");
  });
  std::vector<int> mapped;
  for (const Backing backing : backings) {
    mapped = share_memory(ranks, parts, backing);
    if (std::find(mapped.begin(), mapped.end(), 0) == mapped.end()) break;
  }
  ranks.agree("allocate a control block", [&] {
    split_unmapped_nodes(parts, mapped);
    parts.tuning = choose_tuning(parts.topology, settings);
    parts.scratch = Scratch::first_of(parts.arena);
    parts.processes = processes_of_node(parts.topology, infos);
  });
  make_reader(ranks, parts);
  read_tuning(ranks, parts);
  make_transport(ranks, parts);
  parts.reports = report_targets(ranks, infos, parts.topology, settings);
  std::shared_ptr<Group> group;
  ranks.agree("complete their group", [&] {
    group = std::make_shared<Group>(std::move(parts));
    if (ranks.rank() == 0) log_choices(*group);
  });
  return group;
}

}  // namespace tutti::mpi

namespace tutti {

Communicator communicator_from_address(const void* comm, MpiAbi abi, const Settings& settings) {
  const mpi::Calls& calls = mpi::load_or_throw();
  if (!mpi::is_running()) {
    throw Error(ErrorCode::invalid_argument,
                "communicator_from: MPI is not initialised, or is finalised; a communicator of MPI "
                "exists between MPI_Init and MPI_Finalize");
  }
  mpi::ensure_initialized();  // by this process, and not by the one that forked it
  mpi::require_abi(abi, "communicator_from");
  const mpi::Comm given = calls.comm_at(comm);
  const bool is_null = calls.is_null(given);
  bool between = false;
  if (!is_null) mpi::check(calls.is_intercommunicator(given, &between), "MPI_Comm_test_inter");
  if (is_null || between) {
    throw Error(ErrorCode::invalid_argument,
                std::string("communicator_from: expected the ranks of one group, got ") +
                    (between ? "an intercommunicator; MPI_Intercomm_merge makes one of it"
                             : "MPI_COMM_NULL, which MPI gives to ranks outside of a group"));
  }
  return Communicator(mpi::make_group(given, settings));
}

}  // namespace tutti
