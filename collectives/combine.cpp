// SPDX-License-Identifier: Apache-2.0
#include "collectives/combine.hpp"

namespace tutti::collectives {

void combine_two(const FusedLayout& layout, ReduceOp op, Range range, const std::byte* left,
                 const std::byte* right, std::byte* sum) {
  layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - range.begin;
    const std::byte* sources[] = {left + offset, right + offset};
    std::byte* destination = sum + offset;
    const DType wire = layout.wire(part.segment);
    reduce({op, wire, wire}, sources, std::span(&destination, 1), part.count, Stores::cached);
  });
}

void combine_partials(const FusedLayout& layout, ReduceOp op, Range range, const CombinePlan& plan,
                      std::byte* partials) {
  for (const auto& [left, right] : plan.steps) {
    std::byte* sum = partials + static_cast<std::size_t>(left) * range.size();
    const std::byte* other = partials + static_cast<std::size_t>(right) * range.size();
    combine_two(layout, op, range, sum, other, sum);
  }
}

}  // namespace tutti::collectives
