// SPDX-License-Identifier: Apache-2.0
#include "collectives/tree.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

namespace tutti::collectives {

int split_point(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1))); }

std::vector<int> CombinePlan::of_node(int node) const {
  std::vector<int> indices;
  for (int i = 0; i < static_cast<int>(partials.size()); ++i) {
    if (partials[i].node == node) indices.push_back(i);
  }
  return indices;
}

namespace {

/// Builds the plan of ranks first .. first + count - 1; returns the index of its value.
int build(const std::vector<int>& node_of, int first, int count, CombinePlan& plan) {
  const auto begin = node_of.begin() + first;
  const bool one_node = std::all_of(begin, begin + count, [&](int node) { return node == *begin; });
  if (one_node) {
    plan.partials.push_back({*begin, first, count});
    return static_cast<int>(plan.partials.size()) - 1;
  }
  const int left_count = split_point(count);
  const int left = build(node_of, first, left_count, plan);
  const int right = build(node_of, first + left_count, count - left_count, plan);
  plan.steps.emplace_back(left, right);
  return left;
}

/// Partials of one node side by side, as they travel. The lowest rank's partial stays the first.
void group_by_node(CombinePlan& plan) {
  std::vector<int> order(plan.partials.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int left, int right) {
    return plan.partials[left].node < plan.partials[right].node;
  });
  std::vector<Partial> grouped(order.size());
  std::vector<int> now_at(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    grouped[i] = plan.partials[order[i]];
    now_at[order[i]] = static_cast<int>(i);
  }
  plan.partials = std::move(grouped);
  for (auto& [left, right] : plan.steps) {
    left = now_at[left];
    right = now_at[right];
  }
}

}  // namespace

CombinePlan combine_by_node(const std::vector<std::vector<int>>& nodes) {
  std::vector<int> node_of(nodes.size());
  std::iota(node_of.begin(), node_of.end(), 0);
  CombinePlan plan;
  build(node_of, 0, static_cast<int>(nodes.size()), plan);
  for (Partial& partial : plan.partials) {
    partial.first = 0;
    partial.count = static_cast<int>(nodes[partial.node].size());
  }
  return plan;
}

CombinePlan combine_by_rank(const std::vector<std::vector<int>>& nodes) {
  std::size_t size = 0;
  for (const auto& ranks : nodes) size += ranks.size();
  std::vector<int> node_of(size);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (const int rank : nodes[node]) node_of[rank] = static_cast<int>(node);
  }
  CombinePlan plan;
  build(node_of, 0, static_cast<int>(size), plan);
  // From world ranks to positions in the node: a subtree's ranks are consecutive there, too,
  // because a node lists its ranks in ascending order.
  for (Partial& partial : plan.partials) {
    const auto& ranks = nodes[partial.node];
    partial.first = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), partial.first) -
                                     ranks.begin());
  }
  group_by_node(plan);
  return plan;
}

CombinePlan plan_for(const std::vector<std::vector<int>>& nodes, bool reproducible) {
  return reproducible ? combine_by_rank(nodes) : combine_by_node(nodes);
}

bool is_tree_of_nodes(const CombinePlan& plan, const std::vector<std::vector<int>>& nodes) {
  if (plan.partials.size() != nodes.size()) return false;
  return plan.steps == combine_by_node(nodes).steps;
}

void unite(std::vector<Subtree>& known, int nodes,
           FunctionRef<void(const Subtree&, const Subtree&)> add) {
  std::sort(known.begin(), known.end(), [](const Subtree& left, const Subtree& right) {
    return left.begin != right.begin ? left.begin < right.begin : left.end > right.end;
  });
  const auto are_siblings = [&](const Subtree& left, const Subtree& right) {
    const int size = left.end - left.begin;
    const bool is_left = std::has_single_bit(static_cast<unsigned>(size)) &&
                         left.begin % (2 * size) == 0 && right.begin == left.end;
    return is_left && right.end == std::min(left.begin + 2 * size, nodes);
  };
  std::size_t count = 0;
  for (const Subtree& next : known) {
    if (count > 0 && next.end <= known[count - 1].end) continue;
    known[count++] = next;
    for (; count > 1 && are_siblings(known[count - 2], known[count - 1]); --count) {
      add(known[count - 2], known[count - 1]);
      known[count - 2].end = known[count - 1].end;
    }
  }
  known.erase(known.begin() + static_cast<std::ptrdiff_t>(count), known.end());
}

void combine_two(const FusedLayout& layout, ReduceOp op, Range range, const std::byte* left,
                 const std::byte* right, std::byte* sum) {
  layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - range.begin;
    const std::byte* sources[] = {left + offset, right + offset};
    std::byte* destination = sum + offset;
    const DType wire = layout.wire(part.segment);
    reduce({combining(op), wire, wire}, sources, std::span(&destination, 1), part.count,
           WritePolicy::cached);
  });
}

void combine_partials(const FusedLayout& layout, ReduceOp op, Range range, const CombinePlan& plan,
                      std::byte* partials) {
  for (const auto& [left, right] : plan.steps) {
    std::byte* sum = partials + static_cast<std::size_t>(left) * range.size();
    const std::byte* other = partials + static_cast<std::size_t>(right) * range.size();
    combine_two(layout, op, range, sum, other, sum);
  }
  if (op == ReduceOp::avg) divide_by_ranks(layout, range, plan, partials);
}

void divide_by_ranks(const FusedLayout& layout, Range range, const CombinePlan& plan,
                     std::byte* sum) {
  const auto add = [](int ranks, const Partial& partial) { return ranks + partial.count; };
  const int ranks = std::accumulate(plan.partials.begin(), plan.partials.end(), 0, add);
  layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    divide(layout.wire(part.segment), sum + (part.position - range.begin), part.count,
           static_cast<std::size_t>(ranks));
  });
}

}  // namespace tutti::collectives
