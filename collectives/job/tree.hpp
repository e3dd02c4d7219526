// SPDX-License-Identifier: Apache-2.0
// The canonical order of summation: as pure arithmetic, and carried out on partial sums of nodes.
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

/// The largest power of two below `n`; n >= 2.
int split_point(int n);

/// One partial sum: local ranks first .. first + count - 1 of `node`.
struct Partial {
  int node;
  int first;
  int count;
  friend bool operator==(const Partial&, const Partial&) = default;
};

/// How partial sums of nodes become the sum of all.
///
/// Evaluation: for each (left, right) of the steps in order, value[left] = value[left] +
/// value[right]. The result is value[0]. Where the steps are T(number of nodes), with one partial
/// sum of each node, they are worked out when they are asked for; otherwise they are a list.
class CombinePlan {
 public:
  /// One partial per node, summed in the tree T(number of nodes). For nodes of an equal power of
  /// two of consecutive ranks these are the bits of T(all ranks).
  static CombinePlan by_node(Nodes nodes);
  /// The tree T(all ranks), cut at the largest subtrees that lie within one node: the bits of
  /// T(all ranks) for any layout.
  static CombinePlan by_rank(Nodes nodes);

  /// By node, then by rank.
  [[nodiscard]] std::size_t num_partials() const;
  [[nodiscard]] Partial partial(std::size_t index) const;
  /// The indices of the partials that a node computes: first_of(node) and those that follow it.
  [[nodiscard]] std::size_t first_of(int node) const;
  [[nodiscard]] std::size_t count_of(int node) const;
  [[nodiscard]] int num_ranks() const { return nodes_.num_ranks(); }
  /// One less than there are partials.
  void for_each_step(FunctionRef<void(int left, int right)> visit) const;

  /// True if the plan is T(number of nodes), with one partial sum of each node: what sums on the
  /// way from node to node can carry out.
  [[nodiscard]] bool is_tree_of_nodes() const { return listed_ == nullptr; }

 private:
  struct Listed {
    std::vector<Partial> partials;
    std::vector<std::pair<int, int>> steps;  ///< indices into partials
    std::vector<std::size_t> first_of;       ///< by node, and the end
  };
  explicit CombinePlan(Nodes nodes) : nodes_(std::move(nodes)) {}
  int build(int first, int count, Listed& listed) const;
  static void group_by_node(Listed& listed);

  Nodes nodes_;
  std::shared_ptr<const Listed> listed_;
};

/// by_rank() if `reproducible`, else by_node().
CombinePlan plan_for(const Nodes& nodes, bool reproducible);

/// sum = left + right; `sum` may be one of the operands.
struct Addition {
  const std::byte* left;
  const std::byte* right;
  std::byte* sum;
};

/// For a range of wire elements; each pointer is to the range's first byte. For an average it is
/// the sum.
void combine_two(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                 const Addition& addition);

/// Carries out the plan's steps on a range of wire elements. `partials` holds range.size() bytes
/// for each partial of the plan, in its order; the sum, or the average, ends in the first.
void combine_partials(Workers& workers, const FusedLayout& layout, ReduceOp op, Range range,
                      const CombinePlan& plan, std::byte* partials);

/// Makes the average of a sum over all ranks of the plan, for a range of wire elements at `sum`.
void divide_by_ranks(const FusedLayout& layout, Range range, const CombinePlan& plan,
                     std::byte* sum);

}  // namespace tutti::collectives
