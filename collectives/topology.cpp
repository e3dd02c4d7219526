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

std::string name_of(const Topology& topology, int rank) {
  std::string text = "rank " + std::to_string(rank) + " (host " + topology.hosts[rank];
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
}  // namespace

std::string names_of(const Topology& topology, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return name_of(topology, ranks.front());
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = topology.hosts[rank];
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::string pids;
  constexpr std::size_t kFew = 8;
  if (!topology.processes.empty() && ranks.size() <= kFew) {
    pids = ", pids " +
           listed(ranks, ", ", [&](int rank) { return std::to_string(topology.processes[rank]); });
  }
  return "ranks " + listed(ranks, " and ", [](int rank) { return std::to_string(rank); }) +
         (hosts.size() == 1 ? " (host " : " (hosts ") +
         listed(hosts, ", ", [](const std::string& host) { return host; }) + pids + ")";
}

}  // namespace tutti::collectives
