// SPDX-License-Identifier: Apache-2.0
// Hosts, their networks, clocks, GPUs, and the directory of checkpoints.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "apps/doctor/by_host.hpp"
#include "apps/doctor/checks.hpp"

namespace apps::doctor {
namespace {

constexpr double kMostSkewSeconds = 1.0;

std::set<std::string> networks_of(const Facts& facts) {
  std::set<std::string> networks;
  for (const Interface& one : facts.interfaces) networks.insert(one.network);
  return networks;
}

std::vector<std::string> words(const std::set<std::string>& set) {
  return {set.begin(), set.end()};
}

/// Networks that every host has an address in.
std::set<std::string> common_networks(const std::vector<Host>& hosts) {
  std::set<std::string> common = networks_of(hosts.front().first());
  for (const Host& host : hosts) {
    const auto own = networks_of(host.first());
    std::erase_if(common, [&](const std::string& network) { return !own.contains(network); });
  }
  return common;
}

/// True if "eth0,10.1.0.0/16" names an interface or network of the host.
bool names_one_of(const std::string& list, const Facts& facts) {
  return std::ranges::any_of(facts.interfaces, [&](const Interface& one) {
    const std::string padded = "," + list + ",";
    return padded.find("," + one.name + ",") != std::string::npos ||
           padded.find("," + one.network + ",") != std::string::npos;
  });
}

bool check_included(const std::vector<Host>& hosts, Findings& findings) {
  for (const Host& host : hosts) {
    const std::string& list = host.first().tcp_include;
    if (list.empty() || names_one_of(list, host.first())) continue;
    findings.push_back({Level::error, "network",
                        host.name + ": MPI is told to use " + list + ", which this host has not; " +
                            "it has " + list_text(words(networks_of(host.first()))),
                        "name a network that all hosts have: --mca btl_tcp_if_include NETWORK"});
    return false;
  }
  return true;
}

}  // namespace

void check_hosts(const std::vector<Facts>& ranks, Findings& findings) {
  const auto hosts = by_host(ranks);
  const int allocated = ranks.front().allocated_hosts;
  if (allocated > static_cast<int>(hosts.size())) {
    findings.push_back({Level::error, "hosts",
                        "the batch system gave " + std::to_string(allocated) +
                            " hosts, the job runs on " + std::to_string(hosts.size()),
                        "start ranks on all of them: mpirun's -np, --map-by node and --hostfile"});
    return;
  }
  const auto [fewest, most] =
      std::ranges::minmax(hosts, {}, [](const Host& host) { return host.ranks.size(); });
  if (fewest.ranks.size() != most.ranks.size()) {
    findings.push_back({Level::warning, "hosts",
                        most.name + " runs " + std::to_string(most.ranks.size()) + " ranks, " +
                            fewest.name + " " + std::to_string(fewest.ranks.size()),
                        "equal numbers per host are faster, and powers of two give the same bits "
                        "in other layouts: check the hostfile's slots"});
    return;
  }
  findings.push_back({Level::ok, "hosts",
                      std::to_string(hosts.size()) + ", with " +
                          std::to_string(fewest.ranks.size()) + " of the ranks each",
                      ""});
}

void check_network(const std::vector<Facts>& ranks, Findings& findings) {
  const auto hosts = by_host(ranks);
  if (hosts.size() == 1) {
    findings.push_back({Level::ok, "network", "one host: none is used", ""});
    return;
  }
  if (!check_included(hosts, findings)) return;
  const auto common = common_networks(hosts);
  if (common.empty()) {
    findings.push_back({Level::error, "network",
                        "no network has addresses on all hosts: " + hosts.front().name + " is in " +
                            list_text(words(networks_of(hosts.front().first()))) + ", " +
                            hosts.back().name + " in " +
                            list_text(words(networks_of(hosts.back().first()))),
                        "put the hosts into one network, or use MPI's own fabric"});
    return;
  }
  const bool is_told = !ranks.front().tcp_include.empty() || !ranks.front().tcp_exclude.empty();
  const auto more = std::ranges::find_if(
      hosts, [&](const Host& host) { return networks_of(host.first()).size() > common.size(); });
  if (!is_told && (more != hosts.end() || common.size() > 1)) {
    const Host& host = more == hosts.end() ? hosts.front() : *more;
    findings.push_back(
        {Level::warning, "network",
         host.name + " has several networks (" + list_text(words(networks_of(host.first()))) +
             "), and MPI may try those that lead nowhere (of containers, for "
             "example) and wait",
         "--mca btl_tcp_if_include " + *common.begin() + " (and oob_tcp_if_include)"});
    return;
  }
  findings.push_back({Level::ok, "network", "all hosts are in " + list_text(words(common)), ""});
}

void check_clocks(const std::vector<Facts>& ranks, Findings& findings) {
  const auto worst = std::ranges::max_element(
      ranks, {}, [](const Facts& facts) { return std::abs(facts.clock_offset_s); });
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", std::abs(worst->clock_offset_s));
  if (std::abs(worst->clock_offset_s) <= kMostSkewSeconds) {
    findings.push_back({Level::ok, "clocks", std::string("within ") + text.data(), ""});
    return;
  }
  findings.push_back({Level::warning, "clocks",
                      worst->host + ": its clock is " + text.data() +
                          (worst->clock_offset_s > 0 ? " ahead of " : " behind ") +
                          ranks.front().host + "'s",
                      "synchronise them (chrony, ntp): logs and file times will not fit together"});
}

void check_gpus(const std::vector<Facts>& ranks, Findings& findings) {
  const auto hosts = by_host(ranks);
  std::set<std::size_t> counts;
  for (const Host& host : hosts) {
    counts.insert(static_cast<std::size_t>(host.first().gpus));
    std::map<std::string, int> owner;
    if (host.first().gpus == 0 || host.ranks.size() == 1) continue;
    for (const Facts* facts : host.ranks) {
      if (!facts->restricts_gpus || facts->my_gpus.empty()) continue;
      const auto [found, is_new] = owner.emplace(facts->my_gpus.front(), facts->rank);
      if (is_new) continue;
      findings.push_back({Level::error, "GPUs",
                          host.name + ": ranks " + std::to_string(found->second) + " and " +
                              std::to_string(facts->rank) + " share GPU " + found->first,
                          "one GPU per rank by local rank: launch.sh does so, "
                          "Slurm with --gpus-per-task=1"});
      return;
    }
  }
  if (counts.size() > 1) {
    findings.push_back({Level::warning, "GPUs", "hosts have different numbers of GPUs",
                        "choose hosts of one kind"});
    return;
  }
  const std::size_t each = *counts.begin();
  findings.push_back({Level::ok, "GPUs",
                      each == 0 ? "none, and this build uses none"
                                : std::to_string(each) + " per host; this build uses none",
                      ""});
}

void check_directory(const std::vector<Facts>& ranks, const Plan& plan, Findings& findings) {
  if (plan.directory.empty()) {
    findings.push_back({Level::ok, "checkpoints", "no --checkpoint-dir was given", ""});
    return;
  }
  const Facts& writer = ranks.front();
  if (!writer.has_directory) {
    findings.push_back({Level::error, "checkpoints",
                        writer.host + ": no file can be written in " + plan.directory + ": " +
                            writer.directory_error,
                        "create it, make it writable, or name another one"});
    return;
  }
  // Two generations stay, and a third exists while it is written.
  const std::uint64_t needed = 3 * plan.need;
  if (writer.directory_free < needed) {
    findings.push_back({Level::error, "checkpoints",
                        plan.directory + ": three generations take " + size_text(needed) + ", " +
                            size_text(writer.directory_free) + " are free",
                        "make room, or name a directory on a larger disk"});
    return;
  }
  const auto other =
      std::ranges::find_if(ranks, [](const Facts& facts) { return !facts.has_directory; });
  const std::string ways =
      other == ranks.end()
          ? "every rank can write there"
          : other->host + " does not see it, so the ranks of " + writer.host + " write everything";
  findings.push_back({Level::ok, "checkpoints",
                      size_text(writer.directory_free) + " free in " + plan.directory + "; " + ways,
                      ""});
}

Findings check_all(const std::vector<Facts>& ranks, const Plan& plan) {
  Findings findings;
  check_software(ranks, findings);
  check_settings(ranks, findings);
  check_hosts(ranks, findings);
  check_processors(ranks, findings);
  check_memory(ranks, plan, findings);
  check_limits(ranks, findings);
  check_segments(ranks, findings);
  check_network(ranks, findings);
  check_clocks(ranks, findings);
  check_gpus(ranks, findings);
  check_directory(ranks, plan, findings);
  return findings;
}

}  // namespace apps::doctor
