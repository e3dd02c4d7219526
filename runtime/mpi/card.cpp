// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/card.hpp"

#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "collectives/node_memory.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {

std::uint32_t float_control() {
#if defined(__x86_64__)
  constexpr std::uint32_t kExceptionFlags = 0x3f;  // sticky; they do not change results
  return _mm_getcsr() & ~kExceptionFlags;
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<std::uint32_t>(control);
#else
  return 0;
#endif
}

std::string to_string(const Settings& settings) {
  std::string nodes;
  for (const int size : settings.ranks_per_node) nodes += " " + std::to_string(size);
  return "timeout " + std::to_string(settings.timeout.count()) + " s, grace " +
         std::to_string(settings.grace.count()) + " s, ranks per node" +
         (nodes.empty() ? " all" : nodes) + ", reproducible " +
         std::to_string(settings.reproducible) + ", chunk " + std::to_string(settings.chunk_bytes) +
         ", piece " + std::to_string(settings.piece_bytes) + ", algorithms '" +
         settings.algorithms + "', arena " + std::to_string(settings.arena_bytes) +
         ", shared memory " + settings.shared_memory + ", GPU path " + settings.gpu_path +
         ", verify " + std::to_string(static_cast<int>(settings.verify)) + ", statistics '" +
         settings.statistics + "', trace '" + settings.trace + "'";
}

void fill_cores(Card& card) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  constexpr int kCores = 64 * 16;
  for (int core = 0; core < kCores; ++core) {
    if (CPU_ISSET(core, &set)) card.cores[core / 64] |= std::uint64_t{1} << (core % 64);
  }
}

/// The lowest rank among those that MPI can give shared memory with this one. The split has no
/// nonblocking form; all ranks are there when it begins.
int first_rank_of_host(EarlyCollectives& ranks) {
  ranks.barrier("find out which of them share a host");
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(ranks.comm(), MPI_COMM_TYPE_SHARED, ranks.rank(), MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group everybody = MPI_GROUP_NULL;
  check(MPI_Comm_group(host, &members), "MPI_Comm_group");
  check(MPI_Comm_group(ranks.comm(), &everybody), "MPI_Comm_group");
  const int lowest = 0;  // of the host: members are in the order of ranks
  int first = ranks.rank();
  check(MPI_Group_translate_ranks(members, 1, &lowest, everybody, &first),
        "MPI_Group_translate_ranks");
  check(MPI_Group_free(&members), "MPI_Group_free");
  check(MPI_Group_free(&everybody), "MPI_Group_free");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return first;
}

/// All that a rank knows alone.
void fill(Card& own, const Settings& settings) {
  gethostname(own.host, sizeof own.host - 1);
  std::snprintf(own.version, sizeof own.version, "%s", TUTTI_VERSION);
  const std::string words = to_string(settings);
  std::snprintf(own.settings, sizeof own.settings, "%s", words.c_str());
  own.settings_digest = Digest().add(std::string_view(words)).value();
  own.control_bytes = sizeof(collectives::ControlBlock);
  own.float_control = float_control();
  fill_cores(own);
  own.process = getpid();
  struct stat space {};
  own.process_space = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

void require_equal(const std::vector<Card>& cards, int own_rank, const char* what, auto value_of) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (value_of(cards[rank]) == value_of(cards[0])) continue;
    throw Error(ErrorCode::invalid_argument,
                std::string("ranks differ in their ") + what + ": rank 0 (host " + cards[0].host +
                    ") has " + value_of(cards[0]) + ", rank " + std::to_string(rank) + " (host " +
                    cards[rank].host + ") has " + value_of(cards[rank]) +
                    "; start all ranks with the same program and TUTTI_ variables (mpirun -x)",
                ErrorScope::agreed, /*reporter=*/own_rank == 0);
  }
}

/// Cuts a host's ranks into virtual nodes; the list of sizes is repeated as needed.
std::vector<std::vector<int>> virtual_nodes(const std::vector<int>& ranks,
                                            const std::vector<int>& sizes) {
  if (sizes.empty()) return {ranks};
  std::vector<std::vector<int>> nodes;
  std::size_t taken = 0;
  for (std::size_t i = 0; taken < ranks.size(); ++i) {
    const auto size =
        std::min(ranks.size() - taken, static_cast<std::size_t>(sizes[i % sizes.size()]));
    const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(taken);
    nodes.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    taken += size;
  }
  return nodes;
}

/// On this rank's host, rounded up.
int ranks_per_core(const std::vector<Card>& cards, int rank) {
  std::uint64_t cores[16] = {};
  int ranks = 0;
  for (const Card& card : cards) {
    if (card.host_first != cards[rank].host_first) continue;
    ++ranks;
    for (int i = 0; i < 16; ++i) cores[i] |= card.cores[i];
  }
  int usable = 0;
  for (const std::uint64_t word : cores) usable += std::popcount(word);
  return usable > 0 ? (ranks + usable - 1) / usable : 1;
}

}  // namespace

std::vector<Card> exchange_cards(EarlyCollectives& ranks, const Settings& settings) {
  Card own{};
  std::vector<Card> cards;
  ranks.agree("look at their hosts", [&] {
    cards.resize(static_cast<std::size_t>(ranks.size()));
    fill(own, settings);
  });
  own.host_first = first_rank_of_host(ranks);
  ranks.allgather("exchange their hosts and settings", own, cards);
  return cards;
}

void require_equal_cards(const std::vector<Card>& cards, int rank) {
  require_equal(cards, rank, "library version", [](const Card& card) {
    return std::string(card.version) + " (layout " + std::to_string(card.control_bytes) + ")";
  });
  require_equal(cards, rank, "settings", [](const Card& card) {
    return std::string(card.settings) + " (digest " + std::to_string(card.settings_digest) + ")";
  });
  require_equal(cards, rank, "floating-point mode (rounding, flush to zero)",
                [](const Card& card) { return std::to_string(card.float_control); });
}

collectives::Topology topology_of(const std::vector<Card>& cards, int rank,
                                  const Settings& settings) {
  std::map<int, std::vector<int>> hosts;  // by first rank
  collectives::Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(cards.size());
  topology.hosts.clear();
  for (int other = 0; other < topology.size; ++other) {
    topology.hosts.emplace_back(cards[other].host);
    topology.processes.push_back(cards[other].process);
    hosts[cards[other].host_first].push_back(other);
  }
  std::vector<std::vector<int>> nodes;
  for (const auto& [first, ranks] : hosts) {
    const auto parts = settings.shared_memory == "none"
                           ? virtual_nodes(ranks, {1})
                           : virtual_nodes(ranks, settings.ranks_per_node);
    nodes.insert(nodes.end(), parts.begin(), parts.end());
  }
  topology.set_nodes(std::move(nodes));
  topology.ranks_per_core = ranks_per_core(cards, rank);
  return topology;
}

}  // namespace tutti::mpi
