// SPDX-License-Identifier: Apache-2.0
#include "tests/support/summands.hpp"

#include <bit>
#include <random>

#include "tests/support/oracle.hpp"

namespace test {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(engine);
  return values;
}

std::vector<std::uint16_t> random_bfloat16(std::size_t count, unsigned seed) {
  std::vector<std::uint16_t> halves;
  halves.reserve(count);
  for (const float value : random_values(count, seed)) {
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  return halves;
}

std::vector<float> expected_sum(const std::vector<std::vector<float>>& inputs) {
  return reduced(tutti::ReduceOp::sum, inputs);
}

std::vector<float> ramp_values(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 7) + rank);
  }
  return values;
}

std::vector<float> ramp_sum(std::size_t count, int ranks, int factor) {
  std::vector<float> sum(count);
  const int of_ranks = ranks * (ranks - 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = static_cast<float>((ranks * static_cast<int>(i % 7) + of_ranks) * factor);
  }
  return sum;
}

std::vector<float> values_of(int rank, std::size_t count) {
  return random_values(count, 1000u * static_cast<unsigned>(rank) + 7);
}

std::vector<Summands> summands_of(int ranks, std::span<const std::size_t> counts) {
  std::vector<Summands> all;
  for (const std::size_t count : counts) {
    Summands summands;
    for (int rank = 0; rank < ranks; ++rank) summands.inputs.push_back(values_of(rank, count));
    summands.sum = expected_sum(summands.inputs);
    all.push_back(std::move(summands));
  }
  return all;
}

}  // namespace test
