// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/tree.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

namespace tutti::collectives {

int split_point(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1))); }

namespace {

/// Visits the steps of T(count) over the operands from `first` on.
void visit_tree(int first, int count, const FunctionRef<void(int left, int right)>& visit) {
  if (count < 2) return;
  const int left_count = split_point(count);
  visit_tree(first, left_count, visit);
  visit_tree(first + left_count, count - left_count, visit);
  visit(first, first + left_count);
}

/// True if the nodes of T(all ranks) are subtrees for any number of nodes.
bool nodes_are_subtrees(const Nodes& nodes) {
  const auto ranks = static_cast<unsigned>(nodes.largest());
  return nodes.are_consecutive() && (nodes.size() == 1 || std::has_single_bit(ranks));
}

}  // namespace

CombinePlan CombinePlan::by_node(Nodes nodes) { return CombinePlan(std::move(nodes)); }

CombinePlan CombinePlan::by_rank(Nodes nodes) {
  CombinePlan plan(std::move(nodes));
  if (nodes_are_subtrees(plan.nodes_)) return plan;
  Listed listed;
  plan.build(0, plan.num_ranks(), listed);
  group_by_node(listed);
  if (listed.partials.size() == plan.nodes_.size()) {
    std::vector<std::pair<int, int>> by_node;
    plan.for_each_step([&](int left, int right) { by_node.emplace_back(left, right); });
    if (listed.steps == by_node) return plan;
  }
  plan.listed_ = std::make_shared<const Listed>(std::move(listed));
  return plan;
}

/// Adds the plan of ranks first .. first + count - 1 to `listed`, and returns the index of its
/// value. The ranks of a subtree are also consecutive in their node, because a node has its ranks
/// in ascending order.
int CombinePlan::build(int first, int count, Listed& listed) const {
  const int node = nodes_.node_of(first);
  int alike = 1;
  while (alike < count && nodes_.node_of(first + alike) == node) ++alike;
  if (alike == count) {
    const auto place = static_cast<std::size_t>(node);
    listed.partials.push_back({node, nodes_[place].index_of(first), count});
    return static_cast<int>(listed.partials.size()) - 1;
  }
  const int left_count = split_point(count);
  const int left = build(first, left_count, listed);
  const int right = build(first + left_count, count - left_count, listed);
  listed.steps.emplace_back(left, right);
  return left;
}

/// Sorts the partial sums by node, as they are sent. The partial sum of the lowest rank remains the
/// first.
void CombinePlan::group_by_node(Listed& listed) {
  std::vector<int> order(listed.partials.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int left, int right) {
    return listed.partials[left].node < listed.partials[right].node;
  });
  std::vector<Partial> grouped(order.size());
  std::vector<int> now_at(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    grouped[i] = listed.partials[order[i]];
    now_at[order[i]] = static_cast<int>(i);
    if (i == 0 || grouped[i].node != grouped[i - 1].node) listed.first_of.push_back(i);
  }
  listed.first_of.push_back(grouped.size());
  listed.partials = std::move(grouped);
  for (auto& [left, right] : listed.steps) {
    left = now_at[left];
    right = now_at[right];
  }
}

std::size_t CombinePlan::num_partials() const {
  return listed_ == nullptr ? nodes_.size() : listed_->partials.size();
}

Partial CombinePlan::partial(std::size_t index) const {
  if (listed_ != nullptr) return listed_->partials[index];
  return {static_cast<int>(index), 0, static_cast<int>(nodes_[index].size())};
}

std::size_t CombinePlan::first_of(int node) const {
  const auto place = static_cast<std::size_t>(node);
  return listed_ == nullptr ? place : listed_->first_of[place];
}

std::size_t CombinePlan::count_of(int node) const {
  return listed_ == nullptr ? 1 : first_of(node + 1) - first_of(node);
}

void CombinePlan::for_each_step(FunctionRef<void(int left, int right)> visit) const {
  if (listed_ == nullptr) return visit_tree(0, static_cast<int>(nodes_.size()), visit);
  for (const auto& [left, right] : listed_->steps) visit(left, right);
}

CombinePlan plan_for(const Nodes& nodes, bool reproducible) {
  return reproducible ? CombinePlan::by_rank(nodes) : CombinePlan::by_node(nodes);
}

void combine_two(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                 const Addition& addition) {
  layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - range.begin;
    const std::byte* sources[] = {addition.left + offset, addition.right + offset};
    std::byte* destination = addition.sum + offset;
    const DType wire = layout.wire(part.segment);
    workers.reduce({combining(op), wire, wire}, sources, std::span(&destination, 1), part.count,
                   WritePolicy::cached);
  });
}

void combine_partials(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                      const CombinePlan& plan, std::byte* partials) {
  plan.for_each_step([&](int left, int right) {
    std::byte* sum = partials + static_cast<std::size_t>(left) * range.size();
    const std::byte* other = partials + static_cast<std::size_t>(right) * range.size();
    combine_two(workers, layout, op, range, {sum, other, sum});
  });
  if (op == ReduceOp::avg) divide_by_ranks(layout, range, plan, partials);
}

void divide_by_ranks(const FusedLayout& layout, Range range, const CombinePlan& plan,
                     std::byte* sum) {
  const int ranks = plan.num_ranks();
  layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    divide(layout.wire(part.segment), sum + (part.position - range.begin), part.count,
           static_cast<std::size_t>(ranks));
  });
}

}  // namespace tutti::collectives
