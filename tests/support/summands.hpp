// SPDX-License-Identifier: Apache-2.0
// The values that ranks sum where they are threads, and their sums. Compiled once, with
// optimization and without sanitizers (tests_reference).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace test {

/// Random values whose sums round, so that another order of summation shows.
std::vector<float> random_values(std::size_t count, unsigned seed);

/// Random values like these, without the lower halves of their bits.
std::vector<std::uint16_t> random_bfloat16(std::size_t count, unsigned seed);

/// The sum along the canonical tree, element by element, of inputs of one length, of which there is
/// at least one.
std::vector<float> expected_sum(const std::vector<std::vector<float>>& inputs);

/// Small whole numbers, whose sums are exact in any order.
std::vector<float> ramp_values(std::size_t count, int rank);

/// The sum of ramp_values over ranks 0 to `ranks` - 1, times `factor`.
std::vector<float> ramp_sum(std::size_t count, int ranks, int factor = 1);

/// The values that a rank contributes to a call of `count` elements.
std::vector<float> values_of(int rank, std::size_t count);

/// The values that all ranks contribute, and their canonical sum: made once, before there are
/// threads.
struct Summands {
  std::vector<std::vector<float>> inputs;  ///< by rank
  std::vector<float> sum;
};

std::vector<Summands> summands_of(int ranks, std::span<const std::size_t> counts);

}  // namespace test
