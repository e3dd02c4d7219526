// SPDX-License-Identifier: Apache-2.0
// Which ranks share a node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/job/nodes.hpp"

namespace tutti::collectives {

/// Where each rank is, for messages. All ranks of a node may share what it looks at.
class RankNames {
 public:
  virtual ~RankNames() = default;
  [[nodiscard]] virtual std::string host_of(int rank) const = 0;
  /// The number of its process; none if ranks are threads.
  [[nodiscard]] virtual std::optional<long> process_of(int rank) const = 0;
};

/// Every rank in this process, on one host.
class OneHost final : public RankNames {
 public:
  explicit OneHost(std::string host) : host_(std::move(host)) {}
  [[nodiscard]] std::string host_of(int) const override { return host_; }
  [[nodiscard]] std::optional<long> process_of(int) const override { return std::nullopt; }

 private:
  std::string host_;
};

struct Topology {
  int rank = 0;
  int size = 1;
  int node = 0;        ///< index of this rank's node
  int local_rank = 0;  ///< index within its node
  /// nodes[i] has the ranks of node i in ascending order; nodes are ordered by first rank.
  Nodes nodes;
  std::shared_ptr<const RankNames> names = std::make_shared<const OneHost>("localhost");
  std::vector<int> job_ranks;  ///< each rank's rank in the job; empty if the group is the job
  int group = 0;               ///< number of the group among those of its ranks; 0 is the first
  /// Ranks of this host for each core that they may use between them, rounded up. Above 1,
  /// spinning takes the core from a peer.
  int ranks_per_core = 1;
  /// Cores of this host for each of its ranks, rounded down; at least 1. The same for all its
  /// ranks.
  int cores_per_rank = 1;

  /// This rank's rank in the job.
  [[nodiscard]] int job_rank() const { return job_ranks.empty() ? rank : job_ranks[rank]; }

  [[nodiscard]] int num_nodes() const { return static_cast<int>(nodes.size()); }
  [[nodiscard]] NodeRanks local_ranks() const { return nodes[node]; }
  [[nodiscard]] int local_size() const { return static_cast<int>(nodes[node].size()); }

  /// The index of a rank's node.
  [[nodiscard]] int node_of(int rank_asked) const { return nodes.node_of(rank_asked); }
  /// The local rank of a rank; -1 if it is on another node.
  [[nodiscard]] int local_rank_of(int rank_asked) const {
    return local_ranks().index_of(rank_asked);
  }

  /// Local ranks that speak to other nodes, each for its share: as many as the smallest node has.
  [[nodiscard]] int num_lanes() const { return nodes.smallest(); }

  /// The ranks that carry this rank's share between nodes, in the order of nodes; empty if it
  /// carries none.
  [[nodiscard]] std::vector<int> lane() const;

  [[nodiscard]] std::size_t largest_node() const {
    return static_cast<std::size_t>(nodes.largest());
  }

  /// Sets the nodes, and finds this rank among them.
  void set_nodes(Nodes new_nodes);

  /// What some of these ranks see of each other once they are a group. They are numbered in the
  /// order given; this rank is among them.
  [[nodiscard]] Topology of_group(const std::vector<int>& members) const;

  /// The topology of `size` ranks cut into consecutive nodes, as rank `rank` sees it.
  static Topology consecutive(int rank, const std::vector<int>& node_sizes);
};

/// "rank 3 (host b, pid 4711)"; in a group "rank 1 (rank 3 of the job, host b, pid 4711)".
std::string name_of(const Topology& topology, int rank);
/// "rank 1 (host a, pid 12)" or "ranks 1, 2 and 5 (hosts a, b, pids 12, 13, 14)";
/// where there are many ranks, without process numbers.
std::string names_of(const Topology& topology, const std::vector<int>& ranks);
/// " of the group of ranks 1, 3 and 5 of the job", to name a call; empty if the group is the job.
std::string of_group(const Topology& topology);

}  // namespace tutti::collectives
