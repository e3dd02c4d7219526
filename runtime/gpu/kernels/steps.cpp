// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/kernels/steps.hpp"

#include <array>
#include <bit>
#include <map>

namespace tutti::gpus::kernels {

namespace {

/// The numbers of a step that formulas depend on, as bits.
using Numbers = std::array<std::uint64_t, 5>;

Numbers numbers_of(const UpdateStep& step, bool by_key) {
  return {step.count, std::bit_cast<std::uint64_t>(step.learning_rate),
          std::bit_cast<std::uint64_t>(step.weight_decay), by_key ? step.key : 0,
          std::bit_cast<std::uint64_t>(step.gradient_factor)};
}

/// The end of the run of steps that equal the one at `begin`. Mostly the run is all of them.
std::size_t end_of_run(std::span<const UpdateStep> steps, std::size_t begin, bool by_key) {
  const Numbers first = numbers_of(steps[begin], by_key);
  std::size_t end = begin + 1;
  for (; end < steps.size(); ++end) {
    const Numbers now = numbers_of(steps[end], by_key);
    const std::uint64_t changed = (now[0] ^ first[0]) | (now[1] ^ first[1]) | (now[2] ^ first[2]) |
                                  (now[3] ^ first[3]) | (now[4] ^ first[4]);
    if (changed != 0) break;
  }
  return end;
}

}  // namespace

DifferentSteps different_steps(std::span<const UpdateStep> steps,
                               std::span<const std::uint32_t> places, bool by_key) {
  DifferentSteps different{{}, std::vector<std::uint32_t>(steps.size())};
  std::map<Numbers, std::uint32_t> known;
  for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    end = end_of_run(steps, begin, by_key);
    const auto [found, is_new] = known.try_emplace(
        numbers_of(steps[begin], by_key), static_cast<std::uint32_t>(different.steps.size()));
    if (is_new) different.steps.push_back(steps[begin]);
    if (found->second == 0) continue;  // the vector holds 0 already
    for (std::size_t i = begin; i < end; ++i) different.of_place[places[i]] = found->second;
  }
  return different;
}

}  // namespace tutti::gpus::kernels
