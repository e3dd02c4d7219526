// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/bootstrap.hpp"

#include <algorithm>
#include <cstdio>
#include <random>

#include "runtime/job/settings.hpp"
#include "runtime/mpi/agree.hpp"
#include "runtime/mpi/check.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "runtime/mpi/reports.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/transport.hpp"

namespace tutti::mpi {

namespace {

/// Where a rank's arena is, and what stands in it.
struct Door {
  ArenaAddress address;
  std::uint64_t nonce;
};

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;
}

collectives::ControlBlock& control_of(std::byte* arena) {
  return *reinterpret_cast<collectives::ControlBlock*>(arena);
}

std::vector<Backing> backings(const Settings& settings) {
  if (settings.shared_memory == "memfd" || settings.shared_memory == "none") {
    return {Backing::memfd};
  }
  if (settings.shared_memory == "shm") return {Backing::dev_shm};
  return {Backing::memfd, Backing::dev_shm};
}

/// Maps the arenas of this rank's node. A mapping counts if the peer's nonce can be read through
/// it.
bool map_node(GroupParts& parts, Backing backing, const std::vector<Door>& doors) {
  parts.mappings.clear();
  parts.arenas.clear();
  for (const int rank : parts.topology.local_ranks()) {
    if (rank == parts.topology.rank) {
      parts.arenas.push_back(parts.arena->data());
      continue;
    }
    try {
      parts.mappings.push_back(
          Arena::map_peer(backing, doors[rank].address, parts.arena->reserved_bytes()));
    } catch (const Error&) {
      return false;
    }
    parts.arenas.push_back(parts.mappings.back().data());
    if (control_of(parts.arenas.back()).nonce != doors[rank].nonce) return false;
  }
  return true;
}

/// Makes this rank's arena and maps its node's; says for each rank whether that succeeded.
std::vector<int> share_memory(MPI_Comm comm, GroupParts& parts, Backing backing) {
  agree(comm, [&] {
    const int ranks = parts.topology.local_size();
    unsigned long reserve = Arena::default_reserve(parts.settings.arena_bytes, ranks);
    check(MPI_Allreduce(MPI_IN_PLACE, &reserve, 1, MPI_UNSIGNED_LONG, MPI_MIN, comm),
          "MPI_Allreduce");
    parts.arena = std::make_shared<Arena>(backing, reserve);
  });
  Door own{parts.arena->address(), random_nonce()};
  control_of(parts.arena->data()).nonce = own.nonce;
  std::vector<Door> doors(parts.topology.size);
  check(MPI_Allgather(&own, sizeof own, MPI_BYTE, doors.data(), sizeof own, MPI_BYTE, comm),
        "MPI_Allgather");
  const int mapped = map_node(parts, backing, doors) ? 1 : 0;
  std::vector<int> all_mapped(parts.topology.size);
  check(MPI_Allgather(&mapped, 1, MPI_INT, all_mapped.data(), 1, MPI_INT, comm), "MPI_Allgather");
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
  if (parts.topology.local_size() < static_cast<int>(parts.arenas.size()) ||
      parts.topology.local_size() == 1) {
    parts.mappings.clear();
    parts.arenas = {parts.arena->data()};
  }
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
  ensure_initialized();
  const MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  agree(comm, [&] { require_valid(settings); });
  const std::vector<RankInfo> infos = exchange_rank_infos(comm, settings);
  require_equal_ranks(infos, rank);

  GroupParts parts;
  parts.settings = settings;
  parts.topology = topology_of(infos, rank, settings);
  std::vector<int> mapped;
  for (const Backing backing : backings(settings)) {
    mapped = share_memory(comm, parts, backing);
    if (std::find(mapped.begin(), mapped.end(), 0) == mapped.end()) break;
  }
  split_unmapped_nodes(parts, mapped);
  agree(comm, [&] {
    parts.tuning = choose_tuning(parts.topology, settings);
    allocate_slots(*parts.arena, parts.tuning.chunk_bytes);
  });
  for (const int local : parts.topology.local_ranks()) {
    const bool is_near =
        infos[local].process_space == infos[rank].process_space && infos[local].process_space != 0;
    parts.processes.push_back(is_near ? static_cast<pid_t>(infos[local].process) : 0);
  }
  // On one node, too: a wait there must let the application's own messages progress, because the
  // missing rank may be waiting for one of them.
  if (parts.topology.size > 1) {
    auto transport = std::make_unique<MpiTransport>(comm);
    const int lane = parts.topology.local_rank;
    if (parts.tuning.exchange == collectives::Exchange::mpi && parts.topology.num_nodes() > 1) {
      transport->make_lane(lane < parts.topology.num_lanes() ? lane : -1, parts.topology.node);
    }
    parts.transport = std::move(transport);
  }
  parts.reports = report_targets(comm, infos, parts.topology, settings);
  auto group = std::make_shared<Group>(std::move(parts));
  if (rank == 0) log_choices(*group);
  check(MPI_Barrier(comm), "MPI_Barrier");
  return group;
}

}  // namespace tutti::mpi
