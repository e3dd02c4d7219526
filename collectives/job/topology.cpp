// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/topology.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::collectives {

namespace {

/// The names of those ranks of a job that form a group, by their ranks in the group.
class GroupNames final : public RankNames {
 public:
  GroupNames(std::shared_ptr<const RankNames> all, std::vector<int> members)
      : all_(std::move(all)), members_(std::move(members)) {}
  [[nodiscard]] std::string host_of(int rank) const override {
    return all_->host_of(members_[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] std::optional<long> process_of(int rank) const override {
    return all_->process_of(members_[static_cast<std::size_t>(rank)]);
  }

 private:
  std::shared_ptr<const RankNames> all_;
  std::vector<int> members_;
};

}  // namespace

void Topology::set_nodes(Nodes new_nodes) {
  nodes = std::move(new_nodes);
  node = nodes.node_of(rank);
  local_rank = local_rank_of(rank);
}

std::vector<int> Topology::lane() const {
  std::vector<int> ranks;
  if (local_rank >= num_lanes()) return ranks;
  for (const NodeRanks ranks_of_node : nodes) ranks.push_back(ranks_of_node[local_rank]);
  return ranks;
}

Topology Topology::consecutive(int rank, const std::vector<int>& node_sizes) {
  Topology topology;
  topology.rank = rank;
  topology.size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
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
  chosen.names = std::make_shared<const GroupNames>(names, members);
  std::vector<std::vector<int>> on_node(nodes.size());
  for (int index = 0; index < chosen.size; ++index) {
    const int member = members[index];
    if (member == rank) chosen.rank = index;
    on_node[node_of(member)].push_back(index);
    chosen.job_ranks.push_back(job_ranks.empty() ? member : job_ranks[member]);
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
  text += "host " + topology.names->host_of(rank);
  if (const auto process = topology.names->process_of(rank)) {
    text += ", pid " + std::to_string(*process);
  }
  return text + ")";
}

namespace {
constexpr std::size_t kFew = 8;
constexpr std::size_t kMany = 64;

/// Returns all items, or the first few of very many, such as "1, 2, 5, ... and 90 more".
template <class Item, class Print>
std::string listed(const std::vector<Item>& items, const char* last_separator, Print print) {
  const std::size_t shown = items.size() <= kMany ? items.size() : kFew;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == items.size() ? last_separator : ", ";
    text += print(items[i]);
  }
  if (shown == items.size()) return text;
  return text + ", ... and " + std::to_string(items.size() - shown) + " more";
}
/// Returns a text such as "ranks 1, 2 and 5".
std::string numbers(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") +
         listed(ranks, " and ", [](int rank) { return std::to_string(rank); });
}

}  // namespace

std::string names_of(const Topology& topology, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return name_of(topology, ranks.front());
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string host = topology.names->host_of(rank);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::string in_job;
  std::string pids;
  if (!topology.job_ranks.empty() && ranks.size() <= kFew) {
    std::vector<int> job_ranks;
    for (const int rank : ranks) job_ranks.push_back(topology.job_ranks[rank]);
    in_job = numbers(job_ranks) + " of the job, ";
  }
  if (ranks.size() <= kFew && topology.names->process_of(ranks.front())) {
    pids = ", pids " + listed(ranks, ", ", [&](int rank) {
             return std::to_string(topology.names->process_of(rank).value_or(0));
           });
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
