// SPDX-License-Identifier: Apache-2.0
#include "tests/support/oracle.hpp"

#include <algorithm>
#include <bit>
#include <span>

namespace test {

namespace {

/// Makes a random number from a float's sign, three bits of its exponent and its significand. They
/// are put together as bits: a branch on a random sign would take longer than all else.
template <class T>
T random_value(std::uint64_t bits) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    constexpr std::uint64_t kSixteenth = 1019;  // the exponent of 1/16, as float64 has it
    const std::uint64_t sign = (bits & 8U) << 60;
    const auto value = std::bit_cast<double>(sign | (kSixteenth + (bits & 7U)) << 52 | bits >> 12);
    if constexpr (is_half<T>) {
      return T(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
}

template <class T>
void fill(std::span<T> values, int owner, std::uint64_t seed) {
  const std::uint64_t start = mix(seed * 1000003U + static_cast<std::uint64_t>(owner));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_value<T>(mix(start + i));
}

/// The type in which 16-bit floats are computed.
template <class T>
using Computed = std::conditional_t<is_half<T>, float, T>;

/// Reduces the inputs of ranks first .. first + count - 1 along the canonical tree, whose left
/// subtree is the largest power of two below count.
template <class T>
std::vector<Computed<T>> tree(tutti::ReduceOp op, const std::vector<std::vector<T>>& inputs,
                              std::size_t first, std::size_t count) {
  if (count == 1) return {inputs[first].begin(), inputs[first].end()};
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  std::vector<Computed<T>> whole = tree(op, inputs, first, left);
  const std::vector<Computed<T>> right = tree(op, inputs, first + left, count - left);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = combine(op, whole[i], right[i]);
  return whole;
}

}  // namespace

template <class T>
std::vector<T> reduced(tutti::ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  const bool averages = op == tutti::ReduceOp::avg;
  const auto whole =
      tree(averages ? tutti::ReduceOp::sum : op, inputs, std::size_t{0}, inputs.size());
  const auto divisor = static_cast<Computed<T>>(averages ? inputs.size() : 1);
  std::vector<T> result;
  result.reserve(whole.size());
  for (const Computed<T> value : whole) {
    result.push_back(T(averages ? static_cast<Computed<T>>(value / divisor) : value));
  }
  return result;
}

template <class T>
std::vector<T> random_values(std::size_t count, int owner, std::uint64_t seed) {
  std::vector<T> values(count);
  fill(std::span(values), owner, seed);
  return values;
}

tutti::Tensor random_tensor(tutti::Shape shape, tutti::DType dtype, int owner, std::uint64_t seed) {
  tutti::Tensor tensor = tutti::Tensor::empty(shape, dtype);
  tutti::visit(dtype, [&]<class T>(T) { fill(tensor.values<T>(), owner, seed); });
  return tensor;
}

tutti::Tensor reduced_random(tutti::ReduceOp op, tutti::Shape shape, tutti::DType dtype, int ranks,
                             std::uint64_t seed) {
  tutti::Tensor tensor = tutti::Tensor::empty(shape, dtype);
  tutti::visit(dtype, [&]<class T>(T) {
    std::vector<std::vector<T>> inputs;
    for (int owner = 0; owner < ranks; ++owner) {
      inputs.push_back(random_values<T>(shape.count(), owner, seed));
    }
    std::ranges::copy(reduced(op, inputs), tensor.values<T>().begin());
  });
  return tensor;
}

#define TUTTI_TEST_TYPE(T)                                                   \
  template std::vector<T> random_values<T>(std::size_t, int, std::uint64_t); \
  template std::vector<T> reduced<T>(tutti::ReduceOp, const std::vector<std::vector<T>>&);
TUTTI_TEST_TYPE(tutti::Float16)
TUTTI_TEST_TYPE(tutti::BFloat16)
TUTTI_TEST_TYPE(float)
TUTTI_TEST_TYPE(double)
TUTTI_TEST_TYPE(std::int8_t)
TUTTI_TEST_TYPE(std::uint8_t)
TUTTI_TEST_TYPE(std::int32_t)
TUTTI_TEST_TYPE(std::int64_t)
#undef TUTTI_TEST_TYPE

}  // namespace test
