// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/nodes.hpp"

#include <algorithm>
#include <utility>

namespace tutti::collectives {

namespace {

/// Sorts the nodes by their first ranks. The ranks of each node are already in ascending order.
std::vector<std::vector<int>> ordered(std::vector<std::vector<int>> lists) {
  std::sort(lists.begin(), lists.end());
  return lists;
}

/// True if all nodes have equally many ranks, and rank i of each is `first_of(node) + stride * i`.
template <class FirstOf>
bool follow(const std::vector<std::vector<int>>& lists, FirstOf first_of, int stride) {
  for (std::size_t node = 0; node < lists.size(); ++node) {
    if (lists[node].size() != lists.front().size()) return false;
    int expected = first_of(static_cast<int>(node));
    for (const int rank : lists[node]) {
      if (rank != expected) return false;
      expected += stride;
    }
  }
  return true;
}

std::vector<std::int32_t> words_of(const std::vector<std::vector<int>>& lists) {
  std::vector<std::int32_t> table{static_cast<std::int32_t>(lists.size()), 0};
  std::int32_t ranks = 0;
  for (const auto& list : lists) {
    table.push_back(ranks);
    ranks += static_cast<std::int32_t>(list.size());
  }
  table.push_back(ranks);
  table[1] = ranks;
  for (const auto& list : lists) table.insert(table.end(), list.begin(), list.end());
  const std::size_t nodes_begin = table.size();
  table.resize(nodes_begin + static_cast<std::size_t>(ranks));
  for (std::size_t node = 0; node < lists.size(); ++node) {
    for (const int rank : lists[node]) {
      table[nodes_begin + static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(node);
    }
  }
  return table;
}

}  // namespace

int NodeRanks::index_of(int rank) const {
  if (table_ != nullptr) {
    const std::int32_t* const end = table_ + count_;
    const std::int32_t* const found = std::lower_bound(table_, end, rank);
    return found != end && *found == rank ? static_cast<int>(found - table_) : -1;
  }
  const int distance = rank - first_;
  if (distance < 0 || distance % stride_ != 0) return -1;
  return distance / stride_ < count_ ? distance / stride_ : -1;
}

Nodes::Nodes(std::vector<std::vector<int>> lists) {
  lists = ordered(std::move(lists));
  const auto nodes = static_cast<int>(lists.size());
  const auto ranks = static_cast<int>(lists.front().size());
  if (follow(
          lists, [&](int node) { return node * ranks; }, 1)) {
    *this = consecutive(nodes, ranks);
  } else if (follow(
                 lists, [](int node) { return node; }, nodes)) {
    *this = in_turn(nodes, ranks);
  } else {
    auto words = std::make_shared<const std::vector<std::int32_t>>(words_of(lists));
    adopt({words, words->data()});
  }
}

Nodes Nodes::consecutive(int nodes, int ranks_per_node) {
  return {Rule::consecutive, nodes, ranks_per_node};
}

Nodes Nodes::in_turn(int nodes, int ranks_per_node) {
  return {Rule::in_turn, nodes, ranks_per_node};
}

std::vector<std::int32_t> Nodes::table_of(std::vector<std::vector<int>> lists) {
  return words_of(ordered(std::move(lists)));
}

Nodes Nodes::from_table(std::shared_ptr<const std::int32_t> table) {
  Nodes nodes(Rule::none, 0, 0);
  nodes.adopt(std::move(table));
  return nodes;
}

void Nodes::adopt(std::shared_ptr<const std::int32_t> table) {
  rule_ = Rule::none;
  table_ = std::move(table);
  count_ = table_.get()[0];
  num_ranks_ = table_.get()[1];
  smallest_ = num_ranks_;
  largest_ = 0;
  for (const NodeRanks ranks : *this) {
    smallest_ = std::min(smallest_, static_cast<int>(ranks.size()));
    largest_ = std::max(largest_, static_cast<int>(ranks.size()));
  }
}

int Nodes::node_of(int rank) const {
  switch (rule_) {
    case Rule::consecutive:
      return rank / largest_;
    case Rule::in_turn:
      return rank % count_;
    case Rule::none:
      break;
  }
  return table_.get()[kHeader + static_cast<std::size_t>(count_ + 1 + num_ranks_ + rank)];
}

}  // namespace tutti::collectives
