// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulated/cluster.hpp"

#include <string>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/base/throw.hpp"
#include "runtime/job/settings.hpp"

namespace tutti::simulated {

namespace {

constexpr std::size_t kArenaBytes = std::size_t{256} << 20;  // of address space
constexpr collectives::CacheSizes kCaches{.level1 = std::size_t{32} << 10,
                                          .last_level = std::size_t{32} << 20};

const Settings& checked(const Settings& settings) {
  require_valid(settings);
  if (settings.timeout.count() == 0) {
    throw_invalid_argument(
        "timeout (TUTTI_TIMEOUT): 0 is no deadline, and a simulation needs one, because time "
        "passes "
        "in it whether or not anything happens; expected: more than 0");
  }
  return settings;
}

/// The host of a node has the node's number in its name.
class NodeNames final : public collectives::RankNames {
 public:
  explicit NodeNames(collectives::Nodes nodes) : nodes_(std::move(nodes)) {}
  [[nodiscard]] std::string host_of(int rank) const override {
    return "node" + std::to_string(nodes_.node_of(rank));
  }
  [[nodiscard]] std::optional<long> process_of(int) const override { return std::nullopt; }

 private:
  collectives::Nodes nodes_;
};

}  // namespace

Cluster::Cluster(const Network& network, const std::vector<int>& node_sizes,
                 const Settings& settings, bool data)
    : settings_(checked(settings)), simulation_(network, node_sizes, data), wires_(simulation_) {
  settings_.threads = 1;
}

std::vector<std::shared_ptr<Group>> Cluster::make_groups() {
  const collectives::Nodes nodes =
      collectives::Topology::consecutive(0, simulation_.node_sizes()).nodes;
  const auto names = std::make_shared<const NodeNames>(nodes);
  std::vector<GroupParts> parts(static_cast<std::size_t>(simulation_.size()));
  for (int rank = 0; rank < simulation_.size(); ++rank) {
    GroupParts& own = parts[static_cast<std::size_t>(rank)];
    own.topology.rank = rank;
    own.topology.size = simulation_.size();
    own.topology.set_nodes(nodes);
    own.topology.names = names;
    own.settings = settings_;
    own.arena = std::make_shared<Arena>(Backing::touched, kArenaBytes);
    own.tuning = collectives::Tuning::choose(own.topology, settings_, kCaches);
    // Learning in a node would measure the machine's clock, which means nothing here; between nodes
    // it measures the simulated one.
    if (own.topology.num_nodes() == 1) own.tuning.learns = false;
    own.scratch = Scratch::first_of(own.arena);
    own.pace = &simulation_.pace(rank);
    if (own.topology.num_nodes() > 1) own.transport = wires_.transport_of(rank);
  }
  for (GroupParts& own : parts) {
    for (const int peer : own.topology.local_ranks()) {
      const auto& arena = parts[static_cast<std::size_t>(peer)].arena;
      own.node.push_back(collectives::Peer::first_of(arena->data()));
      if (peer != own.topology.rank) own.peers.push_back(arena);
    }
  }
  std::vector<std::shared_ptr<Group>> groups;
  for (GroupParts& own : parts) groups.push_back(std::make_shared<Group>(std::move(own)));
  return groups;
}

std::vector<std::optional<Error>> Cluster::run(const std::function<void(Communicator&)>& body) {
  std::vector<std::shared_ptr<Group>> groups = make_groups();
  std::vector<std::optional<Error>> outcomes(groups.size());
  simulation_.run([&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    try {
      Communicator communicator(std::move(groups[place]));
      body(communicator);
    } catch (const Error& error) {
      outcomes[place] = error;
    }
  });
  return outcomes;
}

}  // namespace tutti::simulated
