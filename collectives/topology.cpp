// SPDX-License-Identifier: Apache-2.0
#include "collectives/topology.hpp"

#include <numeric>

namespace tutti::collectives {

void Topology::set_nodes(std::vector<std::vector<int>> new_nodes) {
  nodes = std::move(new_nodes);
  std::sort(nodes.begin(), nodes.end());  // that is: by first rank
  for (int index = 0; index < num_nodes(); ++index) {
    const auto found = std::find(nodes[index].begin(), nodes[index].end(), rank);
    if (found == nodes[index].end()) continue;
    node = index;
    local_rank = static_cast<int>(found - nodes[index].begin());
  }
}

int Topology::node_of(int rank_asked) const {
  const auto has_rank = [&](const std::vector<int>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), rank_asked);
  };
  return static_cast<int>(std::find_if(nodes.begin(), nodes.end(), has_rank) - nodes.begin());
}

int Topology::local_rank_of(int rank_asked) const {
  const auto& ranks = local_ranks();
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank_asked);
  return found != ranks.end() && *found == rank_asked ? static_cast<int>(found - ranks.begin())
                                                      : -1;
}

std::vector<int> Topology::lane() const {
  std::vector<int> ranks;
  if (local_rank >= num_lanes()) return ranks;
  for (const auto& ranks_of_node : nodes) ranks.push_back(ranks_of_node[local_rank]);
  return ranks;
}

Topology Topology::consecutive(int rank, const std::vector<int>& node_sizes) {
  Topology topology;
  topology.rank = rank;
  topology.size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  topology.hosts.assign(topology.size, "localhost");
  std::vector<std::vector<int>> nodes;
  int first = 0;
  for (const int node_size : node_sizes) {
    nodes.emplace_back(node_size);
    std::iota(nodes.back().begin(), nodes.back().end(), first);
    first += node_size;
  }
  topology.set_nodes(std::move(nodes));
  return topology;
}

Topology Topology::of_group(const std::vector<int>& members) const {
  Topology chosen;
  chosen.size = static_cast<int>(members.size());
  chosen.ranks_per_core = ranks_per_core;
  chosen.cores_per_rank = cores_per_rank;
  chosen.hosts.clear();
  std::vector<std::vector<int>> on_node(nodes.size());
  for (int index = 0; index < chosen.size; ++index) {
    const int member = members[index];
    if (member == rank) chosen.rank = index;
    on_node[node_of(member)].push_back(index);
    chosen.hosts.push_back(hosts[member]);
    chosen.job_ranks.push_back(job_ranks.empty() ? member : job_ranks[member]);
    if (!processes.empty()) chosen.processes.push_back(processes[member]);
  }
  std::erase_if(on_node, [](const std::vector<int>& ranks) { return ranks.empty(); });
  chosen.set_nodes(std::move(on_node));
  return chosen;
}

std::string name_of(const Topology& topology, int rank) {
  std::string text = "rank " + std::to_string(rank) + " (";
  if (!topology.job_ranks.empty()) {
    text += "rank " + std::to_string(topology.job_ranks[rank]) + " of the job, ";
  }
  text += "host " + topology.hosts[rank];
  if (!topology.processes.empty()) text += ", pid " + std::to_string(topology.processes[rank]);
  return text + ")";
}

namespace {
template <class Item, class Print>
std::string listed(const std::vector<Item>& items, const char* last_separator, Print print) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? last_separator : ", ";
    text += print(items[i]);
  }
  return text;
}
/// "ranks 1, 2 and 5".
std::string numbers(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") +
         listed(ranks, " and ", [](int rank) { return std::to_string(rank); });
}

constexpr std::size_t kFew = 8;

}  // namespace

std::string names_of(const Topology& topology, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return name_of(topology, ranks.front());
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = topology.hosts[rank];
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::string in_job;
  std::string pids;
  if (!topology.job_ranks.empty() && ranks.size() <= kFew) {
    std::vector<int> job_ranks;
    for (const int rank : ranks) job_ranks.push_back(topology.job_ranks[rank]);
    in_job = numbers(job_ranks) + " of the job, ";
  }
  if (!topology.processes.empty() && ranks.size() <= kFew) {
    pids = ", pids " +
           listed(ranks, ", ", [&](int rank) { return std::to_string(topology.processes[rank]); });
  }
  return numbers(ranks) + " (" + in_job + (hosts.size() == 1 ? "host " : "hosts ") +
         listed(hosts, ", ", [](const std::string& host) { return host; }) + pids + ")";
}

std::string of_group(const Topology& topology) {
  const std::vector<int>& ranks = topology.job_ranks;
  if (ranks.empty()) return {};
  if (ranks.size() <= kFew) return " of the group of " + numbers(ranks) + " of the job";
  return " of the group of " + std::to_string(ranks.size()) +
         " ranks of the job that begins with "
         "rank " +
         std::to_string(ranks.front());
}

}  // namespace tutti::collectives
