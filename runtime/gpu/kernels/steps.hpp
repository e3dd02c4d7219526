// SPDX-License-Identifier: Apache-2.0
// The different UpdateSteps of a launch: keys with equal steps share one formula.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/gpu/kernels/table.hpp"

namespace tutti::gpus::kernels {

struct DifferentSteps {
  std::vector<UpdateStep> steps;
  std::vector<std::uint32_t> of_place;  ///< for each row, in the order of CutRows
};

/// Finds the different steps. `by_key`: formulas depend on the key, too.
DifferentSteps different_steps(std::span<const UpdateStep> steps,
                               std::span<const std::uint32_t> places, bool by_key);

}  // namespace tutti::gpus::kernels
