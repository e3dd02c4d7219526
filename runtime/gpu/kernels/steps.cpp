// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/kernels/steps.hpp"

#include <array>
#include <bit>
#include <map>

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/store/optimizers/rules/sgld.hpp"

namespace tutti::gpus::kernels {

DifferentSteps different_steps(std::span<const UpdateStep> steps,
                               std::span<const std::uint32_t> places, bool by_key) {
  const auto value = [&](const UpdateStep& step) {
    return std::array{step.count, std::bit_cast<std::uint64_t>(step.learning_rate),
                      std::bit_cast<std::uint64_t>(step.weight_decay),
                      by_key ? step.key : std::uint64_t{0}};
  };
  DifferentSteps different{{}, std::vector<std::uint32_t>(steps.size())};
  std::map<std::array<std::uint64_t, 4>, std::uint32_t> known;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    // Mostly it is the step of the row before.
    if (i == 0 || value(steps[i]) != value(steps[i - 1])) {
      const auto [found, is_new] =
          known.try_emplace(value(steps[i]), static_cast<std::uint32_t>(different.steps.size()));
      if (is_new) different.steps.push_back(steps[i]);
      last = found->second;
    }
    different.of_place[places[i]] = last;
  }
  return different;
}

bool depends_on_key(const Optimizer& optimizer) {
  return optimizer::options_for<optimizer::SgldRule>(optimizer) != nullptr;
}

}  // namespace tutti::gpus::kernels
