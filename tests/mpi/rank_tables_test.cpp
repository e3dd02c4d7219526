// SPDX-License-Identifier: Apache-2.0
// What a rank knows of all others: nodes by a rule wherever there is one, and names in a table of
// its node.
#include <chrono>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "runtime/mpi/bootstrap.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/library.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::collectives::NodeRanks;
using tutti::collectives::Nodes;
using tutti::collectives::Topology;

namespace {

tutti::Settings cut_into(std::vector<int> ranks_per_node) {
  tutti::Settings settings;
  settings.ranks_per_node = std::move(ranks_per_node);
  return settings;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::vector<long> processes_of_all() {
  tutti::mpi::EarlyCollectives ranks(tutti::mpi::load_or_throw().world(), std::chrono::seconds(60));
  return ranks.allgather("tell their numbers", ranks.comm(), static_cast<long>(getpid()));
}

/// Virtual nodes are consecutive ranks of one host: the sizes are repeated.
bool is_cut_into(const Nodes& nodes, const std::vector<int>& sizes) {
  int next = 0;
  std::size_t index = 0;
  for (const NodeRanks ranks : nodes) {
    const int size = std::min(sizes[index % sizes.size()], test::size() - next);
    if (static_cast<int>(ranks.size()) != size) return false;
    for (const int rank : ranks) {
      if (rank != next++ || nodes.node_of(rank) != static_cast<int>(index)) return false;
    }
    ++index;
  }
  return next == test::size();
}

bool knows_names(const Topology& topology, const std::vector<long>& processes) {
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (topology.names->host_of(rank) != host_name()) return false;
    if (topology.names->process_of(rank) != processes[place]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("nodes are a rule where they have one, and every rank knows the names of all") {
  const std::vector<long> processes = processes_of_all();
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{64}, {1}, {2}, {3, 1}}) {
    const auto group = tutti::mpi::make_world_group(cut_into(sizes));
    const Topology& topology = group->topology();
    CHECK(test::agree(is_cut_into(topology.nodes, sizes)));
    bool equal = true;
    for (const NodeRanks ranks : topology.nodes) {
      equal = equal && ranks.size() == topology.nodes.front().size();
    }
    CHECK(test::agree(topology.nodes.have_table() == !equal));
    CHECK(test::agree(knows_names(topology, processes)));
  }
}
