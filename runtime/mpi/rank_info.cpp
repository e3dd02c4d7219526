// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/rank_info.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "collectives/node_memory.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/job/settings.hpp"
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

/// The lines of `own` that are not in `other`, on one line.
std::string lines_not_in(const std::string& other, const std::string& own) {
  std::string found;
  std::istringstream lines(own);
  for (std::string line; std::getline(lines, line);) {
    if (("\n" + other).find("\n" + line + "\n") != std::string::npos) continue;
    found += (found.empty() ? "" : ", ") + line;
  }
  return found;
}

/// What a rank knows by itself.
void fill(RankInfo& own, const Settings& settings) {
  gethostname(own.host, sizeof own.host - 1);
  std::snprintf(own.version, sizeof own.version, "%s", TUTTI_VERSION);
  own.settings_digest = Digest().add(std::string_view(settings_to_compare(settings))).value();
  own.control_bytes = sizeof(collectives::ControlBlock);
  own.float_control = float_control();
  own.hardware_threads = usable_hardware_threads();
  own.cores = cores_of(own.hardware_threads);
  own.quota = processor_quota();
  own.process = getpid();
  struct stat space {};
  own.process_space = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

/// The lowest rank among those that MPI can give shared memory with this one. The split has no
/// nonblocking form; all ranks are there when it begins.
int first_rank_of_host(EarlyCollectives& ranks) {
  ranks.barrier("find out which of them share a host");
  int first = ranks.rank();
  const InsideCall inside("MPI_Comm_split_type");
  check(calls().first_of_host(ranks.comm(), ranks.rank(), &first), "MPI_Comm_split_type");
  return first;
}

[[noreturn]] void throw_difference(const std::vector<RankInfo>& infos, int own_rank,
                                   std::size_t other, const std::string& what,
                                   const std::array<std::string, 2>& values) {
  throw Error(ErrorCode::invalid_argument,
              "ranks differ in their " + what + ": rank 0 (host " + infos[0].host + ") has " +
                  values[0] + ", rank " + std::to_string(other) + " (host " + infos[other].host +
                  ") has " + values[1] +
                  "; start all ranks with the same program and TUTTI_ variables (mpirun -x)",
              ErrorScope::agreed, /*reporter=*/own_rank == 0);
}

void require_equal(const std::vector<RankInfo>& infos, int own_rank, const char* what,
                   auto value_of) {
  for (std::size_t rank = 1; rank < infos.size(); ++rank) {
    if (value_of(infos[rank]) == value_of(infos[0])) continue;
    throw_difference(infos, own_rank, rank, what, {value_of(infos[0]), value_of(infos[rank])});
  }
}

/// Shows only what differs. What differs behind the end of the text is shown as its digest.
void require_equal_settings(const std::vector<RankInfo>& infos, int own_rank,
                            const std::function<std::vector<SettingsText>()>& exchange) {
  const auto other = std::ranges::find_if(infos, [&](const RankInfo& info) {
    return info.settings_digest != infos.front().settings_digest;
  });
  if (other == infos.end()) return;
  const auto rank = static_cast<std::size_t>(other - infos.begin());
  const std::vector<SettingsText> texts = exchange();
  const char* const first = texts.front().lines;
  std::array<std::string, 2> values{lines_not_in(texts[rank].lines, first),
                                    lines_not_in(first, texts[rank].lines)};
  if (values[0] == values[1]) {
    values = {"a digest of " + std::to_string(infos.front().settings_digest),
              "one of " + std::to_string(other->settings_digest)};
  }
  throw_difference(infos, own_rank, rank, "settings", values);
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

/// What the ranks of this rank's host may use between them: the same on all of them, because it
/// follows from what each has said.
void share_cores(collectives::Topology& topology, const std::vector<RankInfo>& infos) {
  ProcessorSet hardware_threads{};
  ProcessorSet cores{};
  int ranks = 0;
  int quota = 0;
  for (const RankInfo& info : infos) {
    if (info.host_first != infos[topology.rank].host_first) continue;
    ++ranks;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      hardware_threads[i] |= info.hardware_threads[i];
      cores[i] |= info.cores[i];
    }
    if (info.quota > 0) quota = quota > 0 ? std::min(quota, info.quota) : info.quota;
  }
  const int usable = count(hardware_threads);
  topology.ranks_per_core = usable > 0 ? (ranks + usable - 1) / usable : 1;
  topology.cores_per_rank = cores_per_rank(cores, quota, ranks);
}

}  // namespace

std::vector<RankInfo> exchange_rank_infos(EarlyCollectives& ranks, const Settings& settings) {
  RankInfo own{};
  std::vector<RankInfo> infos;
  ranks.agree("look at their hosts", [&] {
    infos.resize(static_cast<std::size_t>(ranks.size()));
    fill(own, settings);
  });
  own.host_first = first_rank_of_host(ranks);
  ranks.allgather("exchange their hosts and settings", own, infos);
  return infos;
}

std::vector<SettingsText> exchange_settings(EarlyCollectives& ranks, const Settings& settings) {
  std::vector<SettingsText> texts;
  SettingsText own{};
  ranks.agree("compare their settings", [&] {
    texts.resize(static_cast<std::size_t>(ranks.size()));
    std::snprintf(own.lines, sizeof own.lines, "%s", settings_to_compare(settings).c_str());
  });
  ranks.allgather("compare their settings", own, texts);
  return texts;
}

void require_equal_ranks(const std::vector<RankInfo>& infos, int rank,
                         const std::function<std::vector<SettingsText>()>& exchange) {
  require_equal(infos, rank, "library version", [](const RankInfo& info) {
    return std::string(info.version) + " (layout " + std::to_string(info.control_bytes) + ")";
  });
  require_equal_settings(infos, rank, exchange);
  require_equal(infos, rank, "floating-point mode (rounding, flush to zero)",
                [](const RankInfo& info) { return std::to_string(info.float_control); });
}

collectives::Topology topology_of(const std::vector<RankInfo>& infos, int rank,
                                  const Settings& settings) {
  std::map<int, std::vector<int>> hosts;  // by first rank
  collectives::Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(infos.size());
  topology.hosts.clear();
  for (int other = 0; other < topology.size; ++other) {
    topology.hosts.emplace_back(infos[other].host);
    topology.processes.push_back(infos[other].process);
    hosts[infos[other].host_first].push_back(other);
  }
  std::vector<std::vector<int>> nodes;
  for (const auto& [first, ranks] : hosts) {
    const auto parts = settings.shared_memory == "none"
                           ? virtual_nodes(ranks, {1})
                           : virtual_nodes(ranks, settings.ranks_per_node);
    nodes.insert(nodes.end(), parts.begin(), parts.end());
  }
  topology.set_nodes(std::move(nodes));
  share_cores(topology, infos);
  return topology;
}

}  // namespace tutti::mpi
