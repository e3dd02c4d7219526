// SPDX-License-Identifier: Apache-2.0
// Nodes: which ranks are in which node, without a table if the layout follows a rule.
//
//   consecutive   0 1 2 | 3 4 5 | 6 7 8      rank r is on node r / 3, as r % 3
//   in turn       0 3 6 | 1 4 7 | 2 5 8      rank r is on node r % 3, as r / 3
//   any other     0 1 2 | 3 4                a table, which ranks of one host may share
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// An iterator for a container whose operator[] creates its items on demand.
template <class Container, class Item>
class IndexIterator {
 public:
  // The names are the standard's. NOLINTBEGIN(readability-identifier-naming)
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Item;
  using difference_type = std::ptrdiff_t;
  using pointer = const Item*;
  using reference = Item;
  // NOLINTEND(readability-identifier-naming)

  IndexIterator() = default;
  IndexIterator(const Container* container, difference_type index)
      : container_(container), index_(index) {}
  Item operator*() const { return (*container_)[static_cast<std::size_t>(index_)]; }
  Item operator[](difference_type steps) const { return *(*this + steps); }
  IndexIterator& operator+=(difference_type steps) {
    index_ += steps;
    return *this;
  }
  IndexIterator& operator-=(difference_type steps) { return *this += -steps; }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this -= 1; }
  IndexIterator operator++(int) { return std::exchange(*this, *this + 1); }
  IndexIterator operator--(int) { return std::exchange(*this, *this - 1); }
  friend IndexIterator operator+(IndexIterator at, difference_type steps) { return at += steps; }
  friend IndexIterator operator+(difference_type steps, IndexIterator at) { return at += steps; }
  friend IndexIterator operator-(IndexIterator at, difference_type steps) { return at -= steps; }
  friend difference_type operator-(const IndexIterator& end, const IndexIterator& begin) {
    return end.index_ - begin.index_;
  }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) {
    return a.index_ == b.index_;
  }
  friend auto operator<=>(const IndexIterator& a, const IndexIterator& b) {
    return a.index_ <=> b.index_;
  }

 private:
  const Container* container_ = nullptr;
  difference_type index_ = 0;
};

/// The ranks of one node, in ascending order: a rule, or a reference to a part of a table.
class NodeRanks {
 public:
  using Iterator = IndexIterator<NodeRanks, int>;

  NodeRanks(int first, int stride, int count) : first_(first), stride_(stride), count_(count) {}
  explicit NodeRanks(std::span<const std::int32_t> table)
      : table_(table.data()), count_(static_cast<int>(table.size())) {}

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(count_); }
  int operator[](std::size_t index) const {
    return table_ != nullptr ? table_[index] : first_ + stride_ * static_cast<int>(index);
  }
  [[nodiscard]] int front() const { return (*this)[0]; }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, count_}; }
  /// Returns the index of a rank in the node; -1 if it is in another node.
  [[nodiscard]] int index_of(int rank) const;
  [[nodiscard]] std::vector<int> list() const { return {begin(), end()}; }

 private:
  const std::int32_t* table_ = nullptr;
  int first_ = 0;
  int stride_ = 1;
  int count_;
};

/// All nodes of a group, in the order of their first ranks. If there is a table, copies share it.
class Nodes {
 public:
  using Iterator = IndexIterator<Nodes, NodeRanks>;

  /// Constructs nodes from lists of the ranks 0 .. n - 1, in any order. NOLINTNEXTLINE: implicit
  Nodes(std::vector<std::vector<int>> lists = {{0}});
  static Nodes consecutive(int nodes, int ranks_per_node);
  static Nodes in_turn(int nodes, int ranks_per_node);

  /// Returns the table for nodes that follow no rule, as words that another process can read.
  static std::vector<std::int32_t> table_of(std::vector<std::vector<int>> lists);
  /// Returns the nodes of such a table, in any memory.
  static Nodes from_table(std::shared_ptr<const std::int32_t> table);

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(count_); }
  NodeRanks operator[](std::size_t node) const;
  [[nodiscard]] NodeRanks front() const { return (*this)[0]; }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, count_}; }

  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  /// Returns the node of a rank.
  [[nodiscard]] int node_of(int rank) const;
  [[nodiscard]] int smallest() const { return smallest_; }
  [[nodiscard]] int largest() const { return largest_; }
  /// True if ranks are numbered consecutively, with the same number on each node.
  [[nodiscard]] bool are_consecutive() const { return rule_ == Rule::consecutive; }
  [[nodiscard]] bool have_table() const { return rule_ == Rule::none; }

 private:
  enum class Rule { consecutive, in_turn, none };
  static constexpr std::size_t kHeader = 2;  ///< number of words before the beginnings of nodes
  Nodes(Rule rule, int nodes, int ranks_per_node)
      : rule_(rule),
        count_(nodes),
        num_ranks_(nodes * ranks_per_node),
        smallest_(ranks_per_node),
        largest_(ranks_per_node) {}
  void adopt(std::shared_ptr<const std::int32_t> table);

  Rule rule_ = Rule::none;
  int count_ = 0;
  int num_ranks_ = 0;
  int smallest_ = 0;
  int largest_ = 0;
  /// The number of nodes, the number of ranks, the beginning of each node and the end of the last,
  /// the ranks of all nodes in sequence, and the node of each rank.
  std::shared_ptr<const std::int32_t> table_;
};

inline NodeRanks Nodes::operator[](std::size_t node) const {
  const auto index = static_cast<int>(node);
  switch (rule_) {
    case Rule::consecutive:
      return {index * largest_, 1, largest_};
    case Rule::in_turn:
      return {index, count_, largest_};
    case Rule::none:
      break;
  }
  const std::int32_t* const begins = table_.get() + kHeader;
  const std::int32_t* const ranks = begins + count_ + 1;
  return NodeRanks(std::span(ranks + begins[index], ranks + begins[index + 1]));
}

}  // namespace tutti::collectives
