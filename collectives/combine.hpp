// SPDX-License-Identifier: Apache-2.0
// Partial sums of nodes become the sum of all.
#pragma once

#include "collectives/fused_layout.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/tree.hpp"

namespace tutti::collectives {

/// sum = left + right, of a range of wire elements; each points to the range's first byte. The sum
/// may be one of the operands.
void combine_two(const FusedLayout& layout, ReduceOp op, Range range, const std::byte* left,
                 const std::byte* right, std::byte* sum);

/// Carries out the plan's steps on a range of wire elements. `partials` holds range.size() bytes
/// for each partial of the plan, in its order; the sum ends in the first.
void combine_partials(const FusedLayout& layout, ReduceOp op, Range range, const CombinePlan& plan,
                      std::byte* partials);

}  // namespace tutti::collectives
