// SPDX-License-Identifier: Apache-2.0
// The canonical order of summation, as a schedule and as operations on partial sums of nodes.
//
//   T(1) = x0        T(n) = T(left p) + T(right n - p),  p = the largest power of two below n
//
//   n = 6:          +
//              +         +          The left operand is always the lower ranks. A block of a power
//            +   +      4 5         of two ranks, aligned to its size, is a subtree of its own: so
//           0 1 2 3                 nodes that hold such blocks can sum by themselves, and the
//                                   result has the same bits as if one node held all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/job/function_ref.hpp"
#include "collectives/job/fused_layout.hpp"
#include "collectives/job/nodes.hpp"
#include "collectives/job/workers.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// Returns the largest power of two below `n`; n >= 2.
int split_point(int n);

/// A partial sum: local ranks first .. first + count - 1 of `node`.
struct Partial {
  int node;
  int first;
  int count;
  friend bool operator==(const Partial&, const Partial&) = default;
};

/// The plan by which the partial sums of all nodes are combined into the total.
///
/// Evaluation: for each step (left, right) in order, value[left] = value[left] + value[right]. The
/// result is value[0]. If the plan is T(number of nodes), with one partial sum of each node, steps
/// are computed on demand; otherwise they are stored.
class CombinePlan {
 public:
  /// Returns the plan with one partial sum per node, combined in the tree T(number of nodes). If
  /// all nodes have the same power of two of consecutive ranks, the bits are those of T(all ranks).
  static CombinePlan by_node(Nodes nodes);
  /// Returns the tree T(all ranks), cut at the largest subtrees that lie within one node. It gives
  /// the bits of T(all ranks) for any layout.
  static CombinePlan by_rank(Nodes nodes);

  /// Partial sums are ordered by node, then by rank.
  [[nodiscard]] std::size_t num_partials() const;
  [[nodiscard]] Partial partial(std::size_t index) const;
  /// Returns the index of the first partial sum of a node; the node computes count_of(node) of
  /// them.
  [[nodiscard]] std::size_t first_of(int node) const;
  [[nodiscard]] std::size_t count_of(int node) const;
  [[nodiscard]] int num_ranks() const { return nodes_.num_ranks(); }
  /// Calls visit() for each step, of which there is one less than partial sums.
  void for_each_step(FunctionRef<void(int left, int right)> visit) const;

  /// True if the plan is T(number of nodes), with one partial sum of each node. Only such a plan
  /// can be carried out on the way from node to node.
  [[nodiscard]] bool is_tree_of_nodes() const { return listed_ == nullptr; }

 private:
  struct Listed {
    std::vector<Partial> partials;
    std::vector<std::pair<int, int>> steps;  ///< indices in `partials`
    std::vector<std::size_t> first_of;       ///< by node, followed by the end
  };
  explicit CombinePlan(Nodes nodes) : nodes_(std::move(nodes)) {}
  int build(int first, int count, Listed& listed) const;
  static void group_by_node(Listed& listed);

  Nodes nodes_;
  std::shared_ptr<const Listed> listed_;
};

/// Returns by_rank() if `reproducible`, else by_node().
CombinePlan plan_for(const Nodes& nodes, bool reproducible);

/// Operands and result of an addition; `sum` may be one of the operands.
struct Addition {
  const std::byte* left;
  const std::byte* right;
  std::byte* sum;
};

/// Adds a range of wire elements; each pointer is to the first byte of the range. Averages are only
/// summed here.
void combine_two(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                 const Addition& addition);

/// Combines partial sums of a range of wire elements by the steps of the plan. `partials` has
/// range.size() bytes for each partial sum, in the plan's order; the sum or average is stored in
/// the first.
void combine_partials(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                      const CombinePlan& plan, std::byte* partials);

/// Divides a range of wire elements at `sum` by the number of ranks of the plan, for an average.
void divide_by_ranks(const FusedLayout& layout, Range range, const CombinePlan& plan,
                     std::byte* sum);

}  // namespace tutti::collectives
