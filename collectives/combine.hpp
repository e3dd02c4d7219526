// SPDX-License-Identifier: Apache-2.0
// Partial sums of nodes become the sum of all.
#pragma once

#include "collectives/flat.hpp"
#include "collectives/reduce.hpp"
#include "collectives/tree.hpp"

namespace tutti::collectives {

/// Carries out the plan's steps on a range of wire elements. `partials` holds range.size() bytes
/// for each partial of the plan, in its order; the sum ends in the first.
void combine_partials(const FlatLayout& layout, ReduceOp op, Range range, const CombinePlan& plan,
                      std::byte* partials);

}  // namespace tutti::collectives
