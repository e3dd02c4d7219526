// SPDX-License-Identifier: Apache-2.0
// The checks of the whole job: libraries, settings, hosts, networks, clocks, GPUs, checkpoints.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include <tutti/error.hpp>
#include <tutti/settings.hpp>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

namespace {

constexpr int kFunneled = 1;  // MPI_THREAD_FUNNELED, the second of four levels

using Value = std::function<std::string(const RankInfo&)>;

std::string place(const RankInfo& info) {
  return "rank " + std::to_string(info.rank) + " (host " + info.host + ")";
}

/// The first rank whose value differs from rank 0's; null if all are equal.
const RankInfo* first_other(const std::vector<RankInfo>& ranks, const Value& value) {
  const std::string expected = value(ranks.front());
  const auto other =
      std::ranges::find_if(ranks, [&](const RankInfo& info) { return value(info) != expected; });
  return other == ranks.end() ? nullptr : &*other;
}

bool check_equal(const std::vector<RankInfo>& ranks, const std::string& what, const Value& value,
                 Findings& findings) {
  const RankInfo* other = first_other(ranks, value);
  if (other == nullptr) return true;
  findings.push_back({Level::error, "software",
                      what + ": " + place(ranks.front()) + " has " + value(ranks.front()) + ", " +
                          place(*other) + " has " + value(*other),
                      "install the same on every host, and check PATH, LD_LIBRARY_PATH and modules "
                      "of shells that mpirun starts there"});
  return false;
}

std::string setting_of(const RankInfo& info, const std::string& name) {
  const auto found = info.settings.find(name);
  return found == info.settings.end() ? "nothing" : name + "=" + found->second;
}

/// Checks for variables that this library does not know, and for values that it cannot read.
bool check_known(const RankInfo& info, Findings& findings) {
  std::vector<std::string> warnings;
  try {
    tutti::Settings::from_variables(info.settings, warnings);
  } catch (const tutti::Error& error) {
    findings.push_back({Level::error, "settings", place(info) + ": " + error.what(),
                        "change it, or unset the variable"});
    return false;
  }
  for (const std::string& warning : warnings) {
    findings.push_back(
        {Level::warning, "settings", place(info) + ": " + warning, "rename it, or unset it"});
  }
  return warnings.empty();
}

}  // namespace

void check_software(const std::vector<RankInfo>& ranks, Findings& findings) {
  const auto library = [](const RankInfo& info) { return "Tutti " + info.library; };
  const auto mpi = [](const RankInfo& info) { return info.mpi; };
  bool all_good = check_equal(ranks, "library", library, findings);
  all_good = check_equal(ranks, "MPI", mpi, findings) && all_good;
  const auto low = std::ranges::find_if(
      ranks, [](const RankInfo& info) { return info.thread_level < kFunneled; });
  if (low != ranks.end()) {
    all_good = false;
    findings.push_back({Level::error, "software",
                        place(*low) + ": MPI gives thread level single, expected at least funneled",
                        "use an MPI library that was built with threads"});
  }
  if (!all_good) return;
  findings.push_back(
      {Level::ok, "software",
       "Tutti " + ranks.front().library + ", " + ranks.front().mpi + ", the same on all ranks",
       ""});
}

std::string launch_error(const RankInfo& info) {
  if (setting_of(info, "TUTTI_LAUNCHER") == "TUTTI_LAUNCHER=ignore") return {};
  if (info.launch.launcher.empty()) return {};
  return tutti::launch_mismatch(info.launch, info.world_size, info.mpi);
}

void check_launch(const std::vector<RankInfo>& ranks, Findings& findings) {
  const RankInfo& first = ranks.front();
  if (const std::string error = launch_error(first); !error.empty()) {
    const auto remedy = error.find("; start it with ");
    findings.push_back(
        {Level::error, "launcher", error.substr(0, remedy), error.substr(remedy + 2)});
    return;
  }
  const tutti::Launch& launch = first.launch;
  const std::string by =
      launch.launcher.empty() ? "no launcher" : launch.launcher + " (" + launch.evidence + ")";
  findings.push_back(
      {Level::ok, "launcher", "built with " + first.mpi_of_build + ", started by " + by, ""});
}

void check_settings(const std::vector<RankInfo>& ranks, Findings& findings) {
  bool all_good = check_known(ranks.front(), findings);
  for (const RankInfo& info : ranks) {
    if (info.settings == ranks.front().settings) continue;
    std::string name;
    for (const auto& [key, value] : info.settings) {
      if (setting_of(info, key) != setting_of(ranks.front(), key)) name = key;
    }
    for (const auto& [key, value] : ranks.front().settings) {
      if (setting_of(info, key) != setting_of(ranks.front(), key)) name = key;
    }
    findings.push_back({Level::error, "settings",
                        place(ranks.front()) + " has " + setting_of(ranks.front(), name) + ", " +
                            place(info) + " has " + setting_of(info, name),
                        "pass it to all ranks: mpirun -x " + name +
                            " ..., or launch.sh, which "
                            "passes every TUTTI_ variable on"});
    all_good = false;
    break;
  }
  if (!all_good) return;
  const std::size_t count = ranks.front().settings.size();
  findings.push_back({Level::ok, "settings",
                      std::to_string(count) + " TUTTI_ variables set, the same on all ranks", ""});
}

// --- hosts, networks, clocks, GPUs, checkpoints --------------------------------------------------

namespace {

constexpr double kMostSkewSeconds = 1.0;

std::set<std::string> networks_of(const RankInfo& info) {
  std::set<std::string> networks;
  for (const Interface& one : info.interfaces) networks.insert(one.network);
  return networks;
}

std::vector<std::string> words(const std::set<std::string>& set) {
  return {set.begin(), set.end()};
}

/// The networks in which every host has an address.
std::set<std::string> common_networks(const std::vector<Host>& hosts) {
  std::set<std::string> common = networks_of(hosts.front().first());
  for (const Host& host : hosts) {
    const auto own = networks_of(host.first());
    std::erase_if(common, [&](const std::string& network) { return !own.contains(network); });
  }
  return common;
}

/// True if "eth0,10.1.0.0/16" names an interface or network of the host.
bool names_one_of(const std::string& list, const RankInfo& info) {
  return std::ranges::any_of(info.interfaces, [&](const Interface& one) {
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

/// The finding about GPUs that the library can use, where all hosts have equally many.
Finding usable_gpus(const std::vector<Host>& hosts) {
  const RankInfo& first = hosts.front().first();
  const std::string there = first.gpus == 0 ? "" : std::to_string(first.gpus) + " per host; ";
  for (const Host& host : hosts) {
    if (host.first().gpus == 0 || host.first().usable_gpus > 0) continue;
    return {Level::warning, "GPUs",
            host.name + ": " + there + "the library can use " + host.first().gpu_text,
            "for values on GPUs build where cmake says \"-- GPUs: CUDA\", with a driver that is "
            "new enough; for values on the CPU do nothing"};
  }
  return {Level::ok, "GPUs", there + "the library can use " + first.gpu_text, ""};
}

}  // namespace

void check_hosts(const std::vector<RankInfo>& ranks, Findings& findings) {
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

void check_network(const std::vector<RankInfo>& ranks, Findings& findings) {
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

void check_clocks(const std::vector<RankInfo>& ranks, Findings& findings) {
  const auto worst = std::ranges::max_element(
      ranks, {}, [](const RankInfo& info) { return std::abs(info.clock_offset_s); });
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

void check_gpus(const std::vector<RankInfo>& ranks, Findings& findings) {
  const auto hosts = by_host(ranks);
  std::set<std::size_t> counts;
  for (const Host& host : hosts) {
    counts.insert(static_cast<std::size_t>(host.first().gpus));
    std::map<std::string, int> owner;
    if (host.first().gpus == 0 || host.ranks.size() == 1) continue;
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      const RankInfo* const info = host.ranks[i];
      if (!info->restricts_gpus || info->my_gpus.empty()) continue;
      // The GPU that the library takes.
      const std::string& own = info->my_gpus[i % info->my_gpus.size()];
      const auto [found, is_new] = owner.emplace(own, info->rank);
      if (is_new) continue;
      findings.push_back({Level::error, "GPUs",
                          host.name + ": ranks " + std::to_string(found->second) + " and " +
                              std::to_string(info->rank) + " share GPU " + found->first,
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
  findings.push_back(usable_gpus(hosts));
}

void check_directory(const std::vector<RankInfo>& ranks, const Plan& plan, Findings& findings) {
  if (plan.directory.empty()) {
    findings.push_back({Level::ok, "checkpoints", "no --checkpoint-dir was given", ""});
    return;
  }
  const RankInfo& writer = ranks.front();
  if (!writer.has_directory) {
    findings.push_back({Level::error, "checkpoints",
                        writer.host + ": no file can be written in " + plan.directory + ": " +
                            writer.directory_error,
                        "create it, make it writable, or name another one"});
    return;
  }
  // Two generations are kept, and a third exists while it is written.
  const std::uint64_t needed = 3 * plan.need;
  if (writer.directory_free < needed) {
    findings.push_back({Level::error, "checkpoints",
                        plan.directory + ": three generations take " + size_text(needed) + ", " +
                            size_text(writer.directory_free) + " are free",
                        "make room, or name a directory on a larger disk"});
    return;
  }
  const auto other =
      std::ranges::find_if(ranks, [](const RankInfo& info) { return !info.has_directory; });
  const std::string ways =
      other == ranks.end()
          ? "every rank can write there"
          : other->host + " does not see it, so the ranks of " + writer.host + " write everything";
  findings.push_back({Level::ok, "checkpoints",
                      size_text(writer.directory_free) + " free in " + plan.directory + "; " + ways,
                      ""});
}

Findings check_all(const std::vector<RankInfo>& ranks, const Plan& plan) {
  Findings findings;
  check_software(ranks, findings);
  check_launch(ranks, findings);
  check_settings(ranks, findings);
  check_hosts(ranks, findings);
  check_processors(ranks, findings);
  check_memory(ranks, plan, findings);
  check_pages(ranks, findings);
  check_reading(ranks, findings);
  check_limits(ranks, findings);
  check_segments(ranks, findings);
  check_network(ranks, findings);
  check_clocks(ranks, findings);
  check_gpus(ranks, findings);
  check_directory(ranks, plan, findings);
  return findings;
}

}  // namespace apps::doctor
