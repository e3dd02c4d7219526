// SPDX-License-Identifier: Apache-2.0
#include "collectives/combine.hpp"

namespace tutti::collectives {

void combine_partials(const FlatLayout& layout, ReduceOp op, Range range, const CombinePlan& plan,
                      std::byte* partials) {
  for (const auto& [left, right] : plan.steps) {
    layout.for_each_part(range, [&](const FlatLayout::Part& part) {
      const std::size_t offset = part.position - range.begin;
      const std::byte* sources[] = {
          partials + static_cast<std::size_t>(left) * range.size() + offset,
          partials + static_cast<std::size_t>(right) * range.size() + offset};
      std::byte* sum = partials + static_cast<std::size_t>(left) * range.size() + offset;
      const DType wire = layout.wire(part.segment);
      reduce({op, wire, wire}, sources, std::span(&sum, 1), part.count, Stores::cached);
    });
  }
}

}  // namespace tutti::collectives
