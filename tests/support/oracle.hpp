// SPDX-License-Identifier: Apache-2.0
// Random data that every rank can compute for every rank, and the right result of a reduction:
// plain code, and in no way like the library's own. Loops over all elements are compiled once, with
// optimization and without sanitizers (tests_reference).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "tutti/tutti.hpp"

namespace test {

// Mixes a number into another: splitmix64.
inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

template <class T>
inline constexpr bool is_half =
    std::is_same_v<T, tutti::Float16> || std::is_same_v<T, tutti::BFloat16>;

/// `count` random values of this owner, the same on every rank. Integers take any bits. Floats are
/// within a factor of 16 of 1, of both signs, with all bits of the significand in use, so that
/// another order of summation shows. For every dtype's type.
template <class T>
std::vector<T> random_values(std::size_t count, int owner, std::uint64_t seed = 1);

tutti::Tensor random_tensor(tutti::Shape shape, tutti::DType dtype, int owner,
                            std::uint64_t seed = 1);

// Combines two operands. Integers wrap; min and max give NaN if either operand is NaN, and order -0
// below +0.
template <class C>
C combine(tutti::ReduceOp op, C left, C right) {
  using Wrapping = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;
  const auto a = static_cast<Wrapping>(left);
  const auto b = static_cast<Wrapping>(right);
  if (op == tutti::ReduceOp::sum) return static_cast<C>(a + b);
  if (op == tutti::ReduceOp::prod) return static_cast<C>(a * b);
  if (left != left || right != right) return std::numeric_limits<C>::quiet_NaN();
  const auto below = [](C x, C y) {
    if constexpr (std::is_floating_point_v<C>) {
      return x < y || (x == y && std::signbit(x) && !std::signbit(y));
    } else {
      return x < y;
    }
  };
  const bool left_first = !below(right, left);
  return (op == tutti::ReduceOp::min) == left_first ? left : right;
}

/// The reduction over all `inputs`, element by element along the canonical tree; 16-bit floats are
/// computed in float32 and rounded at the end. For every dtype's type.
template <class T>
std::vector<T> reduced(tutti::ReduceOp op, const std::vector<std::vector<T>>& inputs);

// The reduction over the ranks 0 .. ranks - 1, each with random_tensor(shape, dtype, rank, seed).
tutti::Tensor reduced_random(tutti::ReduceOp op, tutti::Shape shape, tutti::DType dtype, int ranks,
                             std::uint64_t seed = 1);

inline constexpr std::initializer_list<tutti::DType> kDTypes = {
    tutti::DType::float16, tutti::DType::bfloat16, tutti::DType::float32, tutti::DType::float64,
    tutti::DType::int8,    tutti::DType::uint8,    tutti::DType::int32,   tutti::DType::int64};

}  // namespace test
