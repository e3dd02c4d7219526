// SPDX-License-Identifier: Apache-2.0
// The checks of each host: bindings, load, memory, limits, and the remains of ended jobs.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

std::vector<Host> by_host(const std::vector<RankInfo>& ranks) {
  std::vector<Host> hosts;
  for (const RankInfo& info : ranks) {
    auto host = std::ranges::find(hosts, info.host, &Host::name);
    if (host == hosts.end()) host = hosts.insert(host, {info.host, {}});
    host->ranks.push_back(&info);
  }
  return hosts;
}

std::string list_text(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i == kMost) return text + " and " + std::to_string(words.size() - kMost) + " more";
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

std::string ranks_text(const std::vector<const RankInfo*>& ranks) {
  std::vector<std::string> numbers;
  for (const RankInfo* info : ranks) numbers.push_back(std::to_string(info->rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_text(numbers);
}

// --- bindings and load ---------------------------------------------------------------------------
// Ranks that share a processor take turns, and every push waits for all.

namespace {

bool is_bound(const RankInfo& info) {
  return static_cast<int>(info.processors.size()) < info.host_processors;
}

/// A rank that is bound to the same processors as this one, though neither may use the whole host;
/// else null.
const RankInfo* overlapping(const Host& host, const RankInfo& info) {
  for (const RankInfo* other : host.ranks) {
    if (other->rank >= info.rank || !is_bound(*other)) continue;
    for (const int cpu : info.processors) {
      if (std::ranges::find(other->processors, cpu) != other->processors.end()) return other;
    }
  }
  return nullptr;
}

/// The number of processors that the ranks of a host may use together.
double usable(const Host& host) {
  std::set<int> all;
  for (const RankInfo* info : host.ranks) {
    all.insert(info->processors.begin(), info->processors.end());
  }
  const auto count = static_cast<double>(all.size());
  const double quota = host.first().quota;
  return quota > 0 ? std::min(quota, count) : count;
}

bool check_bindings(const Host& host, Findings& findings) {
  // A batch job's share of a host binds all of its ranks to the same processors, which is no
  // mistake.
  const bool all_alike = std::ranges::all_of(host.ranks, [&](const RankInfo* info) {
    return info->processors == host.first().processors;
  });
  const auto room = static_cast<double>(host.ranks.size());
  if (all_alike && static_cast<double>(host.first().processors.size()) >= room) return true;
  for (const RankInfo* info : host.ranks) {
    if (!is_bound(*info)) continue;
    const RankInfo* other = overlapping(host, *info);
    if (other == nullptr) continue;
    findings.push_back(
        {Level::error, "binding",
         host.name + ": ranks " + std::to_string(other->rank) + " and " +
             std::to_string(info->rank) + " are bound to the same processor, of " +
             std::to_string(info->host_processors),
         "let mpirun bind each rank to cores of its own (--bind-to core --map-by core), or none "
         "(--bind-to none); look at --report-bindings"});
    return false;
  }
  return true;
}

bool check_room(const Host& host, Findings& findings) {
  const double processors = usable(host);
  if (static_cast<double>(host.ranks.size()) <= processors) return true;
  findings.push_back(
      {Level::warning, "processors",
       host.name + ": " + std::to_string(host.ranks.size()) + " ranks take turns on " +
           std::to_string(static_cast<int>(std::floor(processors))) + " usable processors",
       "start fewer ranks on this host, or give the job more processors (its "
       "affinity and its cgroup's cpu.max count)"});
  return false;
}

/// The threads that TUTTI_THREADS asks for; 1 where the library chooses, because it never takes too
/// many.
int threads_per_rank(const RankInfo& info) {
  const auto found = info.settings.find("TUTTI_THREADS");
  return found == info.settings.end() ? 1 : std::max(1, std::atoi(found->second.c_str()));
}

bool check_threads(const Host& host, Findings& findings) {
  const double processors = usable(host);
  const int threads = threads_per_rank(host.first());
  if (threads == 1 || static_cast<double>(host.ranks.size()) * threads <= processors) return true;
  findings.push_back(
      {Level::warning, "processors",
       host.name + ": " + std::to_string(host.ranks.size()) + " ranks of " +
           std::to_string(threads) + " threads each (TUTTI_THREADS) take turns on " +
           std::to_string(static_cast<int>(std::floor(processors))) + " usable processors",
       "unset TUTTI_THREADS, so that each rank has its share of the processors, or give the job "
       "more of them"});
  return false;
}

bool check_load(const Host& host, Findings& findings) {
  const RankInfo& info = host.first();
  const double idle = info.host_processors - info.load;
  if (info.load < 1.0 || idle >= static_cast<double>(host.ranks.size())) return true;
  findings.push_back({Level::warning, "load",
                      host.name + ": other programs use about " +
                          std::to_string(static_cast<int>(std::lround(info.load))) + " of " +
                          std::to_string(info.host_processors) +
                          " processors (load over the last minute)",
                      "wait for them, or choose another host: the slowest rank sets the pace"});
  return false;
}

}  // namespace

void check_processors(const std::vector<RankInfo>& ranks, Findings& findings) {
  bool all_good = true;
  const auto hosts = by_host(ranks);
  for (const Host& host : hosts) {
    all_good = check_bindings(host, findings) && all_good;
    all_good = check_room(host, findings) && check_threads(host, findings) && all_good;
    all_good = check_load(host, findings) && all_good;
  }
  if (!all_good) return;
  findings.push_back({Level::ok, "processors",
                      std::to_string(ranks.size()) + " ranks on " + std::to_string(hosts.size()) +
                          (hosts.size() == 1 ? " host" : " hosts") +
                          ", each with a processor of its own",
                      ""});
}

// --- memory, limits of the process, remains of ended jobs ----------------------------------------

namespace {

/// Bytes of a rank's arena beside the values: scratch, announcements.
constexpr std::uint64_t kOwnBytes = std::uint64_t{16} << 20;

struct Least {
  std::uint64_t bytes;
  std::string source;
};

Least least_memory(const Host& host) {
  const RankInfo& info = host.first();
  if (info.cgroup_memory < info.memory) return {info.cgroup_memory, "its cgroup leaves"};
  return {info.memory, "it has available"};
}

std::string setting(const RankInfo& info, const std::string& name) {
  const auto found = info.settings.find(name);
  return found == info.settings.end() ? "" : found->second;
}

/// True if node-shared memory would be files in /dev/shm.
bool uses_shm(const RankInfo& info) {
  const std::string backing = setting(info, "TUTTI_SHARED_MEMORY");
  return backing == "shm" || (!info.has_memfd && backing != "none");
}

std::uint64_t needed_on(const Host& host, const Plan& plan) {
  return static_cast<std::uint64_t>(host.ranks.size()) * (plan.need + kOwnBytes);
}

bool check_host_memory(const Host& host, const Plan& plan, Findings& findings) {
  const std::uint64_t needed = needed_on(host, plan);
  const Least least = least_memory(host);
  if (needed <= least.bytes) return true;
  findings.push_back({Level::error, "memory",
                      host.name + ": " + std::to_string(host.ranks.size()) + " ranks need " +
                          size_text(needed) + " together; " + least.source + " " +
                          size_text(least.bytes),
                      "fewer ranks per host, a smaller model, or more memory for the job (its "
                      "cgroup's memory.max counts, containers have one)"});
  return false;
}

bool check_shm(const Host& host, const Plan& plan, Findings& findings) {
  if (!uses_shm(host.first())) return true;
  const std::uint64_t needed = needed_on(host, plan);
  if (needed <= host.first().shm_free) return true;
  findings.push_back({Level::error, "shared memory",
                      host.name + ": the ranks need " + size_text(needed) + " in /dev/shm, where " +
                          size_text(host.first().shm_free) + " are free",
                      "leave TUTTI_SHARED_MEMORY at auto, which takes memfd; or enlarge it: "
                      "mount -o remount,size=SIZE /dev/shm, for a container --shm-size=SIZE"});
  return false;
}

bool check_sharing(const Host& host, Findings& findings) {
  if (setting(host.first(), "TUTTI_SHARED_MEMORY") == "none") return true;
  if (!setting(host.first(), "TUTTI_RANKS_PER_NODE").empty()) return true;
  const int node = host.first().node;
  const auto other = std::ranges::find_if(
      host.ranks, [&](const RankInfo* info) { return info->node >= 0 && info->node != node; });
  if (node < 0 || other == host.ranks.end()) return true;
  findings.push_back({Level::error, "shared memory",
                      host.name + ": ranks " + std::to_string(host.first().rank) + " and " +
                          std::to_string((*other)->rank) +
                          " are on one host and cannot map each other's memory, so what they "
                          "exchange goes through MPI",
                      "start both as the same user, in the same container or with a common PID "
                      "namespace (--pid=host), or with a common /dev/shm (--ipc=host)"});
  return false;
}

}  // namespace

void check_memory(const std::vector<RankInfo>& ranks, const Plan& plan, Findings& findings) {
  bool all_good = true;
  std::uint64_t least = kUnlimited;
  for (const Host& host : by_host(ranks)) {
    all_good = check_host_memory(host, plan, findings) && all_good;
    all_good = check_shm(host, plan, findings) && all_good;
    all_good = check_sharing(host, findings) && all_good;
    least = std::min(least, least_memory(host).bytes / host.ranks.size());
  }
  if (!all_good) return;
  const std::string asked =
      plan.need > 0 ? ", " + size_text(plan.need) + " needed" : " (--need SIZE compares)";
  findings.push_back(
      {Level::ok, "memory", "at least " + size_text(least) + " for each rank" + asked, ""});
}

/// Reports huge pages. Their lack is no warning, because hardly any host has them set up; the
/// finding says what they would gain.
void check_pages(const std::vector<RankInfo>& ranks, Findings& findings) {
  std::vector<std::string> small;
  std::string text = "the kernel may give node-shared memory huge pages";
  for (const Host& host : by_host(ranks)) {
    const std::string& setting = host.first().huge_pages;
    if (setting.empty()) text = "the kernel does not say whether node-shared memory gets huge ones";
    if (setting == "never" || setting == "deny") small.push_back(host.name);
  }
  if (!small.empty()) {
    text = list_text(small) +
           ": small ones for node-shared memory; large calls can be faster after "
           "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  findings.push_back({Level::ok, "pages", text, ""});
}

/// Reports whether ranks can read each other's memory. The rank that was refused has the kernel's
/// reason; others have only the fact.
void check_reading(const std::vector<RankInfo>& ranks, Findings& findings) {
  const std::string topic = "reading";
  bool all_good = true;
  bool is_tried = true;
  for (const Host& host : by_host(ranks)) {
    is_tried = is_tried && host.first().node >= 0;
    const auto is_refused = [](const RankInfo* info) {
      return info->why_unreadable.starts_with("cannot");
    };
    const auto found = std::ranges::find_if(host.ranks, is_refused);
    if (found == host.ranks.end()) continue;
    all_good = false;
    findings.push_back(
        {Level::warning, topic,
         host.name + ": rank " + std::to_string((*found)->rank) + " " + (*found)->why_unreadable,
         "the job works without, and large calls from ordinary memory take a copy more; do what "
         "the text says, or keep what is pushed in memory from allocate()"});
  }
  if (!all_good) return;
  findings.push_back({Level::ok, topic,
                      is_tried ? "the ranks of a host can read each other's memory"
                               : "not tried: the library did not start",
                      ""});
}

namespace {

/// A limit of the system that a job can meet.
struct Limit {
  std::uint64_t RankInfo::*value;
  std::uint64_t least;  ///< a limit below it is a finding
  Level level;
  std::string option;
  std::string meaning;
  std::string remedy;
};

/// The limits that jobs meet. ulimit -l is not among them: the library locks no memory, and MPI
/// reports memory that it cannot lock for a network.
std::vector<Limit> limits_of_jobs(std::uint64_t ranks) {
  constexpr std::uint64_t kReserved = std::uint64_t{1} << 40;
  constexpr std::uint64_t kStack = std::uint64_t{1} << 20;
  const std::uint64_t files = 64 + 4 * ranks;
  const std::uint64_t threads = 64 + 16 * ranks;
  const std::string of_ranks = std::to_string(ranks) + " ranks";
  const std::string where = ", in the shell or batch script that starts the job";
  return {{&RankInfo::address_space, kReserved, Level::warning, "-v",
           "of addresses; shared memory is reserved as addresses first, of every rank of the host "
           "in every rank",
           "ulimit -v unlimited, or a smaller TUTTI_ARENA_BYTES"},
          {&RankInfo::open_files, files, Level::error, "-n",
           "open files; MPI and " + of_ranks + " need about " + std::to_string(files),
           "ulimit -n 1024" + where},
          {&RankInfo::file_bytes, kUnlimited, Level::warning, "-f",
           "for a file; what the ranks of a host share is a file for each rank, and checkpoints "
           "are files",
           "ulimit -f unlimited" + where},
          {&RankInfo::data_bytes, kUnlimited, Level::warning, "-d",
           "of data; tensors of the program count, and those of a store of one process",
           "ulimit -d unlimited" + where},
          {&RankInfo::processes, threads, Level::warning, "-u",
           "processes and threads of this user; " + of_ranks + " may need about " +
               std::to_string(threads),
           "ulimit -u 4096" + where},
          {&RankInfo::stack_bytes, kStack, Level::warning, "-s",
           "for the stack of a thread; MPI's own calls may need more", "ulimit -s 8192" + where}};
}

std::string value_text(const Limit& limit, std::uint64_t value) {
  const bool is_count = limit.option == "-n" || limit.option == "-u";
  return is_count ? std::to_string(value) : size_text(value);
}

}  // namespace

void check_limits(const std::vector<RankInfo>& ranks, Findings& findings) {
  bool all_good = true;
  for (const Host& host : by_host(ranks)) {
    for (const Limit& limit : limits_of_jobs(host.ranks.size())) {
      const std::uint64_t value = host.first().*limit.value;
      if (value >= limit.least) continue;
      all_good = false;
      findings.push_back({limit.level, "limits",
                          host.name + ": ulimit " + limit.option + " allows " +
                              value_text(limit, value) + " " + limit.meaning,
                          limit.remedy});
    }
  }
  if (all_good) {
    findings.push_back({Level::ok, "limits", "addresses, files and threads suffice", ""});
  }
}

void check_segments(const std::vector<RankInfo>& ranks, Findings& findings) {
  bool all_good = true;
  for (const Host& host : by_host(ranks)) {
    const auto& stale = host.first().stale_segments;
    if (stale.empty()) continue;
    all_good = false;
    findings.push_back(
        {Level::warning, "segments",
         host.name + ": processes that have ended left " + list_text(stale) + ", which take " +
             size_text(host.first().stale_bytes) + " of memory",
         "rm " + stale.front() + (stale.size() > 1 ? " ..." : "") + " on " + host.name});
  }
  if (all_good) findings.push_back({Level::ok, "segments", "nothing is left of earlier jobs", ""});
}

}  // namespace apps::doctor
