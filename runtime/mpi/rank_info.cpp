// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/rank_info.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "collectives/wait/node_memory.hpp"
#include "runtime/base/build_id.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {

std::uint32_t float_control() {
#if defined(__x86_64__)
  constexpr std::uint32_t kExceptionFlags = 0x3f;  // sticky flags, which do not change results
  return _mm_getcsr() & ~kExceptionFlags;
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<std::uint32_t>(control);
#else
  return 0;
#endif
}

/// Returns the lines of `own` that are not in `other`, joined to one line.
std::string lines_not_in(const std::string& other, const std::string& own) {
  std::string found;
  std::istringstream lines(own);
  for (std::string line; std::getline(lines, line);) {
    if (("\n" + other).find("\n" + line + "\n") != std::string::npos) continue;
    found += (found.empty() ? "" : ", ") + line;
  }
  return found;
}

RankCard card_of(const Settings& settings) {
  RankCard card{};
  gethostname(card.host, sizeof card.host - 1);
  std::snprintf(card.version, sizeof card.version, "%s", TUTTI_VERSION);
  card.settings_digest = Digest().add(std::string_view(settings_to_compare(settings))).value();
  card.control_bytes = sizeof(collectives::WideControlBlock);
  card.float_control = float_control();
  const BuildId build = build_id();
  std::snprintf(card.file, sizeof card.file, "%s", build.file.c_str());
  std::snprintf(card.build, sizeof card.build, "%s", build.id.c_str());
  return card;
}

std::string version_of(const RankCard& card) {
  return std::string(card.version) + " (layout " + std::to_string(card.control_bytes) + ")";
}

bool are_equal(const RankCard& first, const RankCard& other) {
  return version_of(first) == version_of(other) && first.settings_digest == other.settings_digest &&
         first.float_control == other.float_control;
}

/// True if two ranks have different builds of the same file. Programs of different names may each
/// contain the library, from one build of it.
bool are_other_builds(const RankCard& first, const RankCard& other) {
  return std::string_view(first.file) == other.file && std::string_view(first.build) != other.build;
}

/// Warns on the lowest rank whose build differs from rank 0's.
void warn_of_other_builds(EarlyCollectives& ranks, const RankCard& first, const RankCard& own) {
  const int size = ranks.size();
  const int mine = are_other_builds(first, own) ? ranks.rank() : size;
  const auto other =
      static_cast<int>(ranks.minimum("compare their builds", static_cast<std::uint64_t>(mine)));
  if (other == size || other != ranks.rank()) return;
  static std::atomic<bool> has_warned{false};  // a program may make many stores
  if (has_warned.exchange(true)) return;
  std::fprintf(stderr,
               "tutti: warning: ranks run different builds of %s: rank 0 (host %s) has %.12s, rank "
               "%d (host %s) has %.12s; install one build on all hosts\n",
               own.file, first.host, first.build, other, own.host, own.build);
}

/// Returns the facts that a rank knows without the others.
RankInfo info_of(int rank) {
  RankInfo own{};
  gethostname(own.host, sizeof own.host - 1);
  own.rank = rank;
  own.hardware_threads = usable_hardware_threads();
  own.cores = cores_of(own.hardware_threads);
  own.quota = processor_quota();
  own.process = getpid();
  struct stat space {};
  own.process_space = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
  return own;
}

/// Returns for both ranks the settings that the other does not have. A difference behind the end of
/// the texts is shown as digests.
std::array<std::string, 2> settings_that_differ(const RankCard& first, const RankCard& other,
                                                const std::array<SettingsText, 2>& texts) {
  std::array<std::string, 2> values{lines_not_in(texts[1].lines, texts[0].lines),
                                    lines_not_in(texts[0].lines, texts[1].lines)};
  if (values[0] == values[1]) {
    values = {"a digest of " + std::to_string(first.settings_digest),
              "one of " + std::to_string(other.settings_digest)};
  }
  return values;
}

}  // namespace

void require_equal_cards(const RankCard& first, const RankCard& other, int other_rank, int own_rank,
                         const std::function<std::array<SettingsText, 2>()>& texts) {
  const auto refuse = [&](const std::string& what, const std::array<std::string, 2>& values) {
    throw Error(ErrorCode::invalid_argument,
                "ranks differ in their " + what + ": rank 0 (host " + first.host + ") has " +
                    values[0] + ", rank " + std::to_string(other_rank) + " (host " + other.host +
                    ") has " + values[1] +
                    "; start all ranks with the same program and TUTTI_ variables (mpirun -x)",
                ErrorScope::agreed, /*reporter=*/own_rank == 0);
  };
  if (version_of(first) != version_of(other)) {
    refuse("library version", {version_of(first), version_of(other)});
  }
  if (first.settings_digest != other.settings_digest) {
    refuse("settings", settings_that_differ(first, other, texts()));
  }
  if (first.float_control != other.float_control) {
    refuse("floating-point mode (rounding, flush to zero)",
           {std::to_string(first.float_control), std::to_string(other.float_control)});
  }
}

void require_equal_ranks(EarlyCollectives& ranks, const Settings& settings) {
  constexpr const char* kStep = "compare their settings";
  RankCard own{};
  ranks.agree(kStep, [&] { own = card_of(settings); });
  RankCard first = own;
  ranks.broadcast(kStep, 0, std::span(&first, 1));
  const int size = ranks.size();
  const int mine = are_equal(first, own) ? size : ranks.rank();
  const auto other_rank = static_cast<int>(ranks.minimum(kStep, static_cast<std::uint64_t>(mine)));
  if (other_rank == size) return warn_of_other_builds(ranks, first, own);
  RankCard other = own;
  ranks.broadcast(kStep, other_rank, std::span(&other, 1));
  require_equal_cards(first, other, other_rank, ranks.rank(), [&] {
    std::array<SettingsText, 2> texts{};
    for (SettingsText& text : texts) {
      std::snprintf(text.lines, sizeof text.lines, "%s", settings_to_compare(settings).c_str());
    }
    ranks.broadcast(kStep, 0, std::span(texts.data(), 1));
    ranks.broadcast(kStep, other_rank, std::span(texts.data() + 1, 1));
    return texts;
  });
}

HostRanks meet_host(EarlyCollectives& ranks) {
  HostRanks host;
  RankInfo own{};
  ranks.agree("look at their hosts", [&] { own = info_of(ranks.rank()); });
  host.comm = ranks.split_host("find out which of them share a host");
  host.infos = ranks.allgather("meet the ranks of their host", host.comm, own);
  const auto found = std::ranges::find(host.infos, own.rank, &RankInfo::rank);
  host.own = static_cast<std::size_t>(found - host.infos.begin());
  return host;
}

void free_part(Comm comm) {
  if (!comm.is_set()) return;
  const Turn turn("MPI_Comm_free");
  check(calls().free(&comm), "MPI_Comm_free");
}

/// Returns this rank's node: the host's ranks are divided into virtual nodes, for which the list of
/// sizes is repeated as needed.
std::vector<std::size_t> node_on_host(const HostRanks& host, const Settings& settings) {
  std::vector<int> sizes = settings.ranks_per_node;
  if (settings.shared_memory == "none") sizes = {1};
  if (sizes.empty()) sizes = {static_cast<int>(host.infos.size())};
  std::size_t begin = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; end <= host.own; ++i) {
    begin = end;
    end = std::min(host.infos.size(), begin + static_cast<std::size_t>(sizes[i % sizes.size()]));
  }
  std::vector<std::size_t> places(end - begin);
  std::iota(places.begin(), places.end(), begin);
  return places;
}

void share_cores(collectives::Topology& topology, const HostRanks& host) {
  ProcessorSet hardware_threads{};
  ProcessorSet cores{};
  double quota = 0;
  for (const RankInfo& info : host.infos) {
    for (std::size_t i = 0; i < cores.size(); ++i) {
      hardware_threads[i] |= info.hardware_threads[i];
      cores[i] |= info.cores[i];
    }
    if (info.quota > 0) quota = quota > 0 ? std::min(quota, info.quota) : info.quota;
  }
  const auto ranks = static_cast<int>(host.infos.size());
  topology.ranks_per_core = ranks_per_core(hardware_threads, quota, ranks);
  topology.cores_per_rank = cores_per_rank(cores, quota, ranks);
}

}  // namespace tutti::mpi
