// SPDX-License-Identifier: Apache-2.0
// Bindings and load. Ranks that share a processor take turns, and every push waits for all.
#include <algorithm>
#include <cmath>
#include <set>

#include "apps/doctor/by_host.hpp"
#include "apps/doctor/checks.hpp"

namespace apps::doctor {
namespace {

bool is_bound(const Facts& facts) {
  return static_cast<int>(facts.processors.size()) < facts.host_processors;
}

/// Two ranks bound to the same processors, though neither may use the whole host.
const Facts* overlapping(const Host& host, const Facts& facts) {
  for (const Facts* other : host.ranks) {
    if (other->rank >= facts.rank || !is_bound(*other)) continue;
    for (const int cpu : facts.processors) {
      if (std::ranges::find(other->processors, cpu) != other->processors.end()) return other;
    }
  }
  return nullptr;
}

/// Processors that the ranks of a host have together.
double usable(const Host& host) {
  std::set<int> all;
  for (const Facts* facts : host.ranks) {
    all.insert(facts->processors.begin(), facts->processors.end());
  }
  const auto count = static_cast<double>(all.size());
  const double quota = host.first().quota;
  return quota > 0 ? std::min(quota, count) : count;
}

bool check_bindings(const Host& host, Findings& findings) {
  // A batch job's share of a host binds all of its ranks to the same processors: that is no
  // mistake.
  const bool all_alike = std::ranges::all_of(
      host.ranks, [&](const Facts* facts) { return facts->processors == host.first().processors; });
  const auto room = static_cast<double>(host.ranks.size());
  if (all_alike && static_cast<double>(host.first().processors.size()) >= room) return true;
  for (const Facts* facts : host.ranks) {
    if (!is_bound(*facts)) continue;
    const Facts* other = overlapping(host, *facts);
    if (other == nullptr) continue;
    findings.push_back(
        {Level::error, "binding",
         host.name + ": ranks " + std::to_string(other->rank) + " and " +
             std::to_string(facts->rank) + " are bound to the same processor, of " +
             std::to_string(facts->host_processors),
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

bool check_load(const Host& host, Findings& findings) {
  const Facts& facts = host.first();
  const double idle = facts.host_processors - facts.load;
  if (facts.load < 1.0 || idle >= static_cast<double>(host.ranks.size())) return true;
  findings.push_back({Level::warning, "load",
                      host.name + ": other programs use about " +
                          std::to_string(static_cast<int>(std::lround(facts.load))) + " of " +
                          std::to_string(facts.host_processors) +
                          " processors (load over the last minute)",
                      "wait for them, or choose another host: the slowest rank sets the pace"});
  return false;
}

}  // namespace

void check_processors(const std::vector<Facts>& ranks, Findings& findings) {
  bool all_good = true;
  const auto hosts = by_host(ranks);
  for (const Host& host : hosts) {
    all_good = check_bindings(host, findings) && all_good;
    all_good = check_room(host, findings) && all_good;
    all_good = check_load(host, findings) && all_good;
  }
  if (!all_good) return;
  findings.push_back({Level::ok, "processors",
                      std::to_string(ranks.size()) + " ranks on " + std::to_string(hosts.size()) +
                          (hosts.size() == 1 ? " host" : " hosts") +
                          ", each with a processor of its own",
                      ""});
}

}  // namespace apps::doctor
