// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/bootstrap.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "collectives/job/local_error.hpp"
#include "collectives/text/numbers.hpp"
#include "runtime/job/kernel_reader.hpp"
#include "runtime/job/node_observer.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/kept_comms.hpp"
#include "runtime/mpi/layout.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "runtime/mpi/reports.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/transport.hpp"

namespace tutti::mpi {

namespace {

/// The information by which a peer maps a rank's arena, and verifies the mapping.
struct ArenaHandle {
  ArenaAddress address;
  std::uint64_t nonce;
};

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;
}

/// Returns the backings to try, in this order. If any rank cannot make anonymous files, no rank
/// does. Collective.
std::vector<Backing> backings_for(EarlyCollectives& ranks, const Settings& settings) {
  const std::string& asked = settings.shared_memory;
  if (asked == "shm") return {Backing::dev_shm};
  bool is_there = false;
  ranks.agree("look for anonymous files", [&] {
    const std::string why_not = Arena::why_no_memfd();
    is_there = why_not.empty();
    if (is_there || asked != "memfd") return;
    throw Error(ErrorCode::io, "TUTTI_SHARED_MEMORY=memfd: " + why_not +
                                   "; allow the call in the container's seccomp profile, or leave "
                                   "the setting at auto, which takes /dev/shm then");
  });
  const bool all_have = ranks.minimum("find out whether all have them", is_there ? 1 : 0) != 0;
  if (asked == "none") return {all_have ? Backing::memfd : Backing::process};
  if (asked == "memfd") return {Backing::memfd};
  if (!all_have) return {Backing::dev_shm};
  return {Backing::memfd, Backing::dev_shm};
}

/// Maps the arenas of this rank's node. A mapping is valid if the peer's nonce can be read through
/// it. Returns false if one of them is not.
bool map_node(GroupParts& parts, Backing backing, std::span<const ArenaHandle> handles,
              std::size_t own) {
  std::vector<Mapping> mappings;
  parts.node.clear();
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (i == own) {
      parts.node.push_back(collectives::Peer::first_of(parts.arena->data()));
      continue;
    }
    try {
      mappings.push_back(
          Arena::map_peer(backing, handles[i].address, parts.arena->reserved_bytes()));
    } catch (const Error&) {
      return false;
    }
    parts.node.push_back(collectives::Peer::first_of(mappings.back().data()));
    if (parts.node.back().control().nonce != handles[i].nonce) return false;
  }
  parts.mappings = std::make_shared<const std::vector<Mapping>>(std::move(mappings));
  return true;
}

/// The ranks of a node, as consecutive places in the host.
using Places = std::vector<std::size_t>;

/// Makes this rank's arena and maps those of its node. Returns for each rank of the host whether it
/// succeeded.
std::vector<int> share_memory(EarlyCollectives& ranks, const HostRanks& host, const Places& node,
                              GroupParts& parts, Backing backing) {
  std::uint64_t reserve = 0;
  ranks.agree("look how much memory they have", [&] {
    reserve = Arena::default_reserve(parts.settings.arena_bytes, static_cast<int>(node.size()));
  });
  reserve = ranks.minimum("settle how much memory to reserve", reserve);
  ArenaHandle own{};
  ranks.agree("reserve node-shared memory", [&] {
    parts.arena = std::make_shared<Arena>(backing, reserve);
    own = {parts.arena->address(), random_nonce()};
    collectives::Peer::first_of(parts.arena->data()).control().nonce = own.nonce;
  });
  const auto handles = ranks.allgather("tell each other where their memory is", host.comm, own);
  int mapped = 0;
  ranks.agree("map each other's memory", [&] {
    const auto of_node = std::span(handles).subspan(node.front(), node.size());
    mapped = map_node(parts, backing, of_node, host.own - node.front()) ? 1 : 0;
  });
  std::vector<int> all_mapped =
      ranks.allgather("tell each other whether they could map it", host.comm, mapped);
  parts.arena->unlink();
  return all_mapped;
}

/// Shares memory by the first backing with which all ranks of the job succeed. With the last one,
/// ranks that cannot map each other become nodes of one rank, whatever MPI reports about their
/// host.
void share_memory(EarlyCollectives& ranks, const HostRanks& host, Places& node, GroupParts& parts) {
  std::vector<int> mapped;
  for (const Backing backing : backings_for(ranks, parts.settings)) {
    mapped = share_memory(ranks, host, node, parts, backing);
    const int all = *std::min_element(mapped.begin(), mapped.end());
    if (ranks.minimum("find out whether all could map it", static_cast<std::uint64_t>(all)) != 0) {
      return;
    }
  }
  ranks.agree("see what is mapped", [&] {
    if (std::all_of(node.begin(), node.end(), [&](std::size_t at) { return mapped[at] != 0; })) {
      return;
    }
    if (host.own == node.front()) {
      std::vector<int> apart;
      for (const std::size_t place : node) apart.push_back(host.infos[place].rank);
      collectives::Log(parts.topology, parts.settings.log)
          .warn(names_of(parts.topology, apart) +
                " cannot map each other's memory and will use MPI instead");
    }
    node = {host.own};
    parts.mappings.reset();
    parts.node = {collectives::Peer::first_of(parts.arena->data())};
  });
}

/// Returns the process IDs of the node's ranks, or 0 for those in another PID namespace.
std::vector<pid_t> processes_of_node(const HostRanks& host, const Places& node) {
  std::vector<pid_t> processes;
  for (const std::size_t place : node) {
    const RankInfo& other = host.infos[place];
    const bool is_near =
        other.process_space == host.self().process_space && host.self().process_space != 0;
    processes.push_back(is_near ? static_cast<pid_t>(other.process) : 0);
  }
  return processes;
}

/// Returns the first reason why this rank cannot read a peer's memory; empty if there is none.
std::string why_unreadable(const GroupParts& parts, std::span<const Probe> probes) {
  for (std::size_t i = 0; i < parts.processes.size(); ++i) {
    const int rank = parts.topology.local_ranks()[i];
    if (rank == parts.topology.rank) continue;
    const std::string why = parts.processes[i] == 0
                                ? "it is in another PID namespace (start the ranks of a host in "
                                  "one: --pid=host for a container)"
                                : read_probe(parts.processes[i], probes[i]);
    if (why.empty()) continue;
    return "cannot read the memory of " + collectives::name_of(parts.topology, rank) + ": " + why;
  }
  return {};
}

/// Tests whether all ranks of a node can read each other's ordinary memory. What the kernel allows
/// depends on users, on Yama and on containers.
void make_reader(EarlyCollectives& ranks, const HostRanks& host, const Places& node,
                 GroupParts& parts) {
  const auto nonce = std::make_unique<std::uint64_t>(random_nonce());
  const Probe own{.address = reinterpret_cast<std::uintptr_t>(nonce.get()), .nonce = *nonce};
  const auto probes = ranks.allgather("tell each other what to read", host.comm, own);
  ranks.agree("try to read each other's memory", [&] {
    parts.why_unreadable =
        why_unreadable(parts, std::span(probes).subspan(node.front(), node.size()));
  });
  const int readable = parts.why_unreadable.empty() ? 1 : 0;
  const auto all_readable =
      ranks.allgather("tell each other whether they could read it", host.comm, readable);
  const auto unable = std::find_if(node.begin(), node.end(),
                                   [&](std::size_t place) { return all_readable[place] == 0; });
  if (unable == node.end() && node.size() > 1) {
    parts.reader = std::make_unique<KernelReader>(parts.topology, parts.processes);
  } else if (unable != node.end() && parts.why_unreadable.empty()) {
    parts.why_unreadable = collectives::name_of(parts.topology, host.infos[*unable].rank) +
                           " cannot read the memory of others of its node";
  }
}

/// Reads the tuning file. Ranks whose files differ would choose different paths, so they are
/// compared.
void read_tuning(EarlyCollectives& ranks, GroupParts& parts) {
  KnownPaths known;
  ranks.agree("read the file of TUTTI_TUNING", [&] {
    known = read_known_paths(parts.settings.tuning, parts.topology.local_size());
  });
  std::uint64_t first = known.digest;
  ranks.broadcast("compare their files of TUTTI_TUNING", 0, std::span(&first, 1));
  ranks.agree("compare their files of TUTTI_TUNING", [&] {
    if (known.digest == first) return;
    throw Error(ErrorCode::mismatch,
                "TUTTI_TUNING=" + parts.settings.tuning + ": the file of " +
                    collectives::name_of(parts.topology, ranks.rank()) +
                    " has other contents than that of rank 0; give all ranks the same file");
  });
  parts.known = std::move(known);
}

/// Makes the transport, also on one node: a wait there must let the application's own messages
/// progress, because the missing rank may be waiting for one of them.
void make_transport(EarlyCollectives& ranks, int number, Callers callers, GroupParts& parts) {
  if (parts.topology.size == 1) return;
  ranks.agree("prepare their messages", [&] {
    auto messages =
        std::make_unique<MpiTransport>(ranks.comm(), parts.topology.num_nodes(), number);
    if (callers == Callers::of_mpi) messages->let_callers_progress();
    parts.transport = std::move(messages);
  });
  if (parts.topology.num_nodes() > 1 && thread_level() < ThreadLevel::serialized) {
    parts.why_not_async =
        "they are made by a thread of their own, which MPI does not allow as the program has "
        "initialised it; give MPI_Init_thread MPI_THREAD_SERIALIZED or more, or leave MPI_Init to "
        "the library";
  }
  const bool by_mpi = parts.tuning.exchange == collectives::Exchange::mpi;
  if (!by_mpi || parts.topology.num_nodes() == 1) return;
  ranks.barrier("make a communicator for each share of the data");
  const auto failed =
      collectives::caught([&] { parts.transport->make_lane(parts.topology.lane()); });
  ranks.agree("have a communicator for each share of the data", [&] {
    if (failed) throw Error(failed->code, failed->text);
  });
}

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// The limit if there is no deadline.
constexpr Seconds kForAnotherMaker{60};

Seconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Measures the time of creating the group, for TUTTI_LOG=info.
class CreationTime {
 public:
  [[nodiscard]] std::string text() const {
    const double computed_ms = std::milli::den * (processor_time() - computed_before_).count();
    return "created in " + significant(Seconds(Clock::now() - begun_).count(), 3) + " s, with " +
           significant(computed_ms, 3) + " ms of this rank's processor time";
  }

 private:
  Clock::time_point begun_ = Clock::now();
  Seconds computed_before_ = processor_time();
};

/// Logs the layout of the ranks, and the choices of the group.
void log_choices(Group& group, const CreationTime& creation) {
  if (!group.log().writes(LogLevel::info)) return;
  const auto& topology = group.topology();
  group.log().write(LogLevel::info, std::string("version ") + TUTTI_VERSION + ", " +
                                        std::to_string(topology.size) + " ranks on " +
                                        std::to_string(topology.num_nodes()) + " nodes");
  group.log().write(LogLevel::info, creation.text());
  for (const std::string& line : group.engine().tuning().table(topology)) {
    group.log().write(LogLevel::info, line);
  }
}

/// Makes a group of ranks that have met in a communicator of their own. Everything that may fail on
/// a single rank is done in an agree(), so that no other rank waits for it.
std::shared_ptr<Group> complete(EarlyCollectives& ranks, const CommOfGroup& own, Callers callers,
                                const CreationTime& creation, const Settings& settings) {
  require_equal_ranks(ranks, settings);
  const HostRanks host = meet_host(ranks);

  GroupParts parts;
  parts.numbers = own.numbers;
  Places node;
  ranks.agree("lay out their nodes", [&] {
    parts.settings = settings;
    parts.topology.rank = ranks.rank();
    parts.topology.size = ranks.size();
    parts.topology.names = names_on_host(host);
    node = node_on_host(host, settings);
    const Turn turn("MPI_Group_translate_ranks");
    check(calls().ranks_in_world(ranks.comm(), &parts.topology.job_ranks),
          "MPI_Group_translate_ranks");
  });
  share_memory(ranks, host, node, parts);
  lay_out(ranks, host, node, parts);
  ranks.agree("allocate a control block", [&] {
    parts.tuning = choose_tuning(parts.topology, settings);
    parts.scratch = Scratch::first_of(parts.arena);
    parts.processes = processes_of_node(host, node);
  });
  make_reader(ranks, host, node, parts);
  read_tuning(ranks, parts);
  make_transport(ranks, own.number, callers, parts);
  parts.reports = report_targets(ranks, host, parts.topology, settings);
  free_part(host.comm);
  std::shared_ptr<Group> group;
  ranks.agree("complete their group", [&] {
    group = std::make_shared<Group>(std::move(parts));
    if (ranks.rank() == 0) log_choices(*group, creation);
  });
  return group;
}

/// Makes a group. `is_world` says that its ranks are all of MPI_COMM_WORLD, in its order.
std::shared_ptr<Group> make(const Comm& comm, bool is_world, Callers callers,
                            const Settings& settings) {
  const CreationTime creation;
  const MakesGroup makes_group;
  EarlyCollectives ranks(comm, settings.timeout, settings.log >= LogLevel::warning);
  std::unique_lock<std::timed_mutex> only_maker;
  ranks.agree("begin to create their store or communicator", [&] {
    require_valid(settings);
    if (ranks.size() == 1) return;
    // This thread waits for half of the time that the other ranks wait.
    const bool has_limit = settings.timeout.count() > 0;
    only_maker = require_only_maker(has_limit ? settings.timeout / 2 : kForAnotherMaker);
    watch_calls(settings.timeout, ranks.name());
  });
  // This is not done earlier, because some MPIs complete no communicator before those begun
  // earlier.
  CommOfGroup own;
  if (is_world) {
    own = take_comm_of_world(ranks);
  } else {
    ranks.leave_parent("make a communicator of their own");
  }
  try {
    return complete(ranks, own, callers, creation, settings);
  } catch (...) {  // the communicator is not used again: some rank may still be in a call of MPI
    collectives::leak_until_exit(own.numbers);
    throw;
  }
}

}  // namespace

std::shared_ptr<Group> make_world_group(const Settings& settings, Callers callers) {
  if (!load(settings)) return nullptr;
  ensure_initialized(settings);
  require_launch(settings);
  auto group = make(calls().world(), /*is_world=*/true, callers, settings);
  finalize_together();  // all ranks of the job have met
  return group;
}

std::shared_ptr<Group> make_group(const Comm& comm, const Settings& settings) {
  return make(comm, /*is_world=*/false, Callers::of_library, settings);
}

}  // namespace tutti::mpi
