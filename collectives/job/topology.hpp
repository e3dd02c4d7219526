// SPDX-License-Identifier: Apache-2.0
// Topology: the nodes of a group, and their ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/job/nodes.hpp"

namespace tutti::collectives {

/// The location of each rank, for messages. The ranks of a node may share the underlying data.
class RankNames {
 public:
  virtual ~RankNames() = default;
  [[nodiscard]] virtual std::string host_of(int rank) const = 0;
  /// Returns the process ID of a rank, or none if ranks are threads.
  [[nodiscard]] virtual std::optional<long> process_of(int rank) const = 0;
};

/// All ranks are in this process, on one host.
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
  int local_rank = 0;  ///< index of this rank in its node
  /// nodes[i] has the ranks of node i in ascending order; nodes are ordered by first rank.
  Nodes nodes;
  std::shared_ptr<const RankNames> names = std::make_shared<const OneHost>("localhost");
  std::vector<int> job_ranks;  ///< each rank's rank in the job; empty if the group is the whole job
  int group = 0;  ///< number of the group, unique among the groups of its ranks; 0 is the first
  /// Number of ranks of this host per core that they may use, rounded up. If it is above 1,
  /// spinning takes the core from a peer.
  int ranks_per_core = 1;
  /// Number of cores of this host per rank, rounded down; at least 1. It is the same for all ranks
  /// of the host.
  int cores_per_rank = 1;

  /// Returns this rank's rank in the job.
  [[nodiscard]] int job_rank() const { return job_ranks.empty() ? rank : job_ranks[rank]; }

  [[nodiscard]] int num_nodes() const { return static_cast<int>(nodes.size()); }
  [[nodiscard]] NodeRanks local_ranks() const { return nodes[node]; }
  [[nodiscard]] int local_size() const { return static_cast<int>(nodes[node].size()); }

  /// Returns the index of a rank's node.
  [[nodiscard]] int node_of(int rank_asked) const { return nodes.node_of(rank_asked); }
  /// Returns the local rank of a rank; -1 if it is on another node.
  [[nodiscard]] int local_rank_of(int rank_asked) const {
    return local_ranks().index_of(rank_asked);
  }

  /// Returns the number of local ranks that exchange a share with other nodes, which is the size of
  /// the smallest node.
  [[nodiscard]] int num_lanes() const { return nodes.smallest(); }

  /// Returns the ranks that carry this rank's share between nodes, in the order of nodes; empty if
  /// it carries none.
  [[nodiscard]] std::vector<int> lane() const;

  [[nodiscard]] std::size_t largest_node() const {
    return static_cast<std::size_t>(nodes.largest());
  }

  /// Sets the nodes, and this rank's place in them.
  void set_nodes(Nodes new_nodes);

  /// Returns the topology of a group of some of these ranks, which include this rank. They are
  /// numbered in the order given.
  [[nodiscard]] Topology of_group(const std::vector<int>& members) const;

  /// Returns the topology of rank `rank` if ranks are divided into consecutive nodes of these
  /// sizes.
  static Topology consecutive(int rank, const std::vector<int>& node_sizes);
};

/// Names a rank, such as "rank 3 (host b, pid 4711)"; in a group "rank 1 (rank 3 of the job, host
/// b, pid 4711)".
std::string name_of(const Topology& topology, int rank);
/// Names several ranks, such as "rank 1 (host a, pid 12)" or "ranks 1, 2 and 5 (hosts a, b, pids
/// 12, 13, 14)"; many ranks are named without process IDs.
std::string names_of(const Topology& topology, const std::vector<int>& ranks);
/// Names a group in the description of a call, such as " of the group of ranks 1, 3 and 5 of the
/// job"; empty if the group is the job.
std::string of_group(const Topology& topology);

}  // namespace tutti::collectives
