// SPDX-License-Identifier: Apache-2.0
// Memory, limits of the process, and what ended jobs left behind.
#include <algorithm>

#include "apps/doctor/by_host.hpp"
#include "apps/doctor/checks.hpp"

namespace apps::doctor {
namespace {

/// What a rank's arena takes beside the values: scratch, announcements.
constexpr std::uint64_t kOwnBytes = std::uint64_t{16} << 20;

struct Least {
  std::uint64_t bytes;
  std::string source;
};

Least least_memory(const Host& host) {
  const Facts& facts = host.first();
  if (facts.cgroup_memory < facts.memory) return {facts.cgroup_memory, "its cgroup leaves"};
  return {facts.memory, "it has available"};
}

std::string setting(const Facts& facts, const std::string& name) {
  const auto found = facts.settings.find(name);
  return found == facts.settings.end() ? "" : found->second;
}

/// True if node-shared memory would be files in /dev/shm.
bool uses_shm(const Facts& facts) {
  const std::string backing = setting(facts, "TUTTI_SHARED_MEMORY");
  return backing == "shm" || (!facts.has_memfd && backing != "none");
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
      host.ranks, [&](const Facts* facts) { return facts->node >= 0 && facts->node != node; });
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

void check_memory(const std::vector<Facts>& ranks, const Plan& plan, Findings& findings) {
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

void check_limits(const std::vector<Facts>& ranks, Findings& findings) {
  constexpr std::uint64_t kReserved = std::uint64_t{1} << 40;
  bool all_good = true;
  for (const Host& host : by_host(ranks)) {
    const Facts& facts = host.first();
    if (facts.address_space < kReserved) {
      all_good = false;
      findings.push_back({Level::warning, "limits",
                          host.name + ": ulimit -v allows " + size_text(facts.address_space) +
                              " of addresses; shared memory is reserved as addresses first, of "
                              "every rank of the host in every rank",
                          "ulimit -v unlimited, or a smaller TUTTI_ARENA_BYTES"});
    }
    const std::uint64_t files = 64 + 4 * static_cast<std::uint64_t>(host.ranks.size());
    if (facts.open_files < files) {
      all_good = false;
      findings.push_back({Level::error, "limits",
                          host.name + ": ulimit -n allows " + std::to_string(facts.open_files) +
                              " open files; MPI and " + std::to_string(host.ranks.size()) +
                              " ranks need about " + std::to_string(files),
                          "ulimit -n 1024, in the shell or batch script that starts the job"});
    }
  }
  if (all_good) findings.push_back({Level::ok, "limits", "addresses and open files suffice", ""});
}

void check_segments(const std::vector<Facts>& ranks, Findings& findings) {
  bool all_good = true;
  for (const Host& host : by_host(ranks)) {
    const auto& stale = host.first().stale_segments;
    if (stale.empty()) continue;
    all_good = false;
    findings.push_back(
        {Level::warning, "segments",
         host.name + ": processes that have ended left " + list_text(stale) + ", which take memory",
         "rm " + stale.front() + (stale.size() > 1 ? " ..." : "") + " on " + host.name});
  }
  if (all_good) findings.push_back({Level::ok, "segments", "nothing is left of earlier jobs", ""});
}

}  // namespace apps::doctor
