// SPDX-License-Identifier: Apache-2.0
// The ranks of nodes: a rule, a table and lists describe the same nodes alike.
#include "collectives/job/nodes.hpp"

#include <doctest/doctest.h>
#include <memory>
#include <numeric>
#include <vector>

using tutti::collectives::NodeRanks;
using tutti::collectives::Nodes;

namespace {

using Lists = std::vector<std::vector<int>>;

Lists in_a_row(const std::vector<int>& sizes) {
  Lists lists;
  int next = 0;
  for (const int size : sizes) {
    lists.emplace_back(static_cast<std::size_t>(size));
    std::iota(lists.back().begin(), lists.back().end(), next);
    next += size;
  }
  return lists;
}

Lists in_turn(int nodes, int ranks_per_node) {
  Lists lists(static_cast<std::size_t>(nodes));
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    lists[static_cast<std::size_t>(rank % nodes)].push_back(rank);
  }
  return lists;
}

/// True if these nodes have the ranks of the lists, by every function that tells them.
bool are(const Nodes& nodes, const Lists& lists) {
  if (nodes.size() != lists.size()) return false;
  std::size_t index = 0;
  int ranks_before = 0;
  for (const NodeRanks ranks : nodes) {
    const std::vector<int>& list = lists[index];
    if (ranks.list() != list || ranks.front() != list.front()) return false;
    for (std::size_t place = 0; place < list.size(); ++place) {
      const int rank = list[place];
      if (ranks.index_of(rank) != static_cast<int>(place)) return false;
      if (nodes.node_of(rank) != static_cast<int>(index)) return false;
      if (lists.size() > 1 && lists[(index + 1) % lists.size()].front() == rank) return false;
      if (nodes[(index + 1) % lists.size()].index_of(rank) >= 0 && lists.size() > 1) return false;
    }
    if (ranks.index_of(-1) != -1 || ranks.index_of(nodes.num_ranks()) != -1) return false;
    ranks_before += static_cast<int>(list.size());
    ++index;
  }
  return ranks_before == nodes.num_ranks();
}

}  // namespace

TEST_CASE("nodes of equally many ranks in a row, or dealt out in turn, need no table") {
  for (const int count : {1, 2, 3, 8, 17}) {
    for (const int ranks : {1, 2, 3, 8}) {
      CAPTURE(count);
      CAPTURE(ranks);
      const Lists row = in_a_row(std::vector<int>(static_cast<std::size_t>(count), ranks));
      CHECK(are(Nodes(row), row));
      CHECK(are(Nodes::consecutive(count, ranks), row));
      CHECK_FALSE(Nodes(row).have_table());
      CHECK(Nodes(row).are_consecutive());
      const Lists dealt = in_turn(count, ranks);
      CHECK(are(Nodes(dealt), dealt));
      CHECK(are(Nodes::in_turn(count, ranks), dealt));
      CHECK_FALSE(Nodes(dealt).have_table());
    }
  }
}

TEST_CASE("any other nodes have a table, which may lie anywhere") {
  for (const Lists& lists : {in_a_row({3, 5}), in_a_row({2, 2, 1}), in_a_row({1, 2, 2}),
                             Lists{{0, 2}, {1, 3, 4}}, Lists{{0, 1}, {2, 6}, {3, 7}, {4, 5}}}) {
    const Nodes nodes(lists);
    CHECK(nodes.have_table());
    CHECK(are(nodes, lists));
    auto words = std::make_shared<const std::vector<std::int32_t>>(Nodes::table_of(lists));
    CHECK(are(Nodes::from_table({words, words->data()}), lists));
  }
  CHECK(Nodes(in_a_row({3, 5, 2})).smallest() == 2);
  CHECK(Nodes(in_a_row({3, 5, 2})).largest() == 5);
}

TEST_CASE("nodes are in the order of their first ranks, whatever the order of the lists") {
  CHECK(are(Nodes(Lists{{2, 3}, {0, 1}}), Lists{{0, 1}, {2, 3}}));
  CHECK(are(Nodes(Lists{{3, 4}, {0, 1, 2}}), Lists{{0, 1, 2}, {3, 4}}));
}
