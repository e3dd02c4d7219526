// SPDX-License-Identifier: Apache-2.0
#include "collectives/tree.hpp"

#include <doctest/doctest.h>
#include <numeric>
#include <string>

#include "unit/threads.hpp"

using namespace tutti::collectives;

namespace {

/// A sum that remembers its order: "((0+1)+2)".
struct Expression {
  std::string text;
  friend Expression operator+(const Expression& left, const Expression& right) {
    return {"(" + left.text + "+" + right.text + ")"};
  }
};

std::vector<Expression> leaves(const std::vector<int>& ranks) {
  std::vector<Expression> expressions;
  for (const int rank : ranks) expressions.push_back({std::to_string(rank)});
  return expressions;
}

std::string canonical(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return test::tree_sum(leaves(ranks), 0, ranks.size()).text;
}

/// What the ranks of these nodes compute when they follow a plan.
std::string carried_out(const CombinePlan& plan, const std::vector<std::vector<int>>& nodes) {
  std::vector<Expression> values;
  for (const Partial& partial : plan.partials) {
    values.push_back(test::tree_sum(leaves(nodes[partial.node]), partial.first, partial.count));
  }
  for (const auto& [left, right] : plan.steps) values[left] = values[left] + values[right];
  return values[0].text;
}

std::vector<std::vector<int>> consecutive(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> nodes;
  int next = 0;
  for (const int size : sizes) {
    nodes.emplace_back(size);
    std::iota(nodes.back().begin(), nodes.back().end(), next);
    next += size;
  }
  return nodes;
}

bool equal_powers_of_two(const std::vector<int>& sizes) {
  const auto one = static_cast<unsigned>(sizes.front());
  return std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); }) &&
         (one & (one - 1)) == 0;
}

}  // namespace

TEST_CASE("the left subtree is the largest power of two below n") {
  CHECK(canonical(2) == "(0+1)");
  CHECK(canonical(3) == "((0+1)+2)");
  CHECK(canonical(6) == "(((0+1)+(2+3))+(4+5))");
  for (const auto& [n, left] : {std::pair{2, 1}, {3, 2}, {4, 2}, {5, 4}, {8, 4}, {9, 8}}) {
    CHECK(split_point(n) == left);
  }
}

TEST_CASE("combine_by_rank is the canonical tree for every layout of up to 9 ranks") {
  for (int n = 1; n <= 9; ++n) {
    for (const auto& sizes : test::layouts_of(n)) {
      const auto nodes = consecutive(sizes);
      CHECK(carried_out(combine_by_rank(nodes), nodes) == canonical(n));
    }
  }
}

TEST_CASE("combine_by_rank is the canonical tree when ranks are dealt out round robin") {
  const std::vector<std::vector<int>> nodes{{0, 2, 4, 6}, {1, 3, 5, 7}};
  CHECK(carried_out(combine_by_rank(nodes), nodes) == canonical(8));
}

TEST_CASE("combine_by_node is the canonical tree for nodes of an equal power of two") {
  int such_layouts = 0;
  for (int n = 1; n <= 9; ++n) {
    for (const auto& sizes : test::layouts_of(n)) {
      if (!equal_powers_of_two(sizes)) continue;
      ++such_layouts;
      const auto nodes = consecutive(sizes);
      CHECK(carried_out(combine_by_node(nodes), nodes) == canonical(n));
    }
  }
  CHECK(such_layouts > 12);
}

TEST_CASE("combine_by_node sends one partial sum per node, in any layout") {
  for (const auto& sizes : test::layouts_of(7)) {
    const auto nodes = consecutive(sizes);
    const CombinePlan plan = combine_by_node(nodes);
    CHECK(plan.partials.size() == nodes.size());
    CHECK(plan.steps.size() == nodes.size() - 1);
  }
}

TEST_CASE("the partial sums of one node are neighbours in the plan") {
  const std::vector<std::vector<int>> nodes{{0, 2, 5}, {1, 3, 4}};
  const CombinePlan plan = combine_by_rank(nodes);
  for (int node = 0; node < 2; ++node) {
    const auto indices = plan.of_node(node);
    CHECK(indices.back() - indices.front() == static_cast<int>(indices.size()) - 1);
  }
}
