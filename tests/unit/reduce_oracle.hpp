// SPDX-License-Identifier: Apache-2.0
// Reductions once more, for comparison: one element at a time, the canonical tree by recursion,
// every rule of the arithmetic spelled out. And the data to try them on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "collectives/kernels/reduce.hpp"

namespace tutti::test {

using collectives::Reduction;

template <class T>
using ComputedIn = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
T wrapped(ReduceOp op, T left, T right) {
  __extension__ using Wide = __int128;  // no product of two elements overflows it
  const Wide exact = op == ReduceOp::sum ? Wide{left} + Wide{right} : Wide{left} * Wide{right};
  return static_cast<T>(exact);
}

template <class T>
T combine(ReduceOp op, T left, T right) {
  if (op == ReduceOp::sum || op == ReduceOp::prod) {
    if constexpr (std::is_floating_point_v<T>) {
      const T result = op == ReduceOp::sum ? left + right : left * right;
      return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
    } else {
      return wrapped(op, left, right);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) || std::isnan(right)) return std::numeric_limits<T>::quiet_NaN();
    if (left == 0 && right == 0) {
      const bool negative = op == ReduceOp::min ? std::signbit(left) || std::signbit(right)
                                                : std::signbit(left) && std::signbit(right);
      return negative ? T{-0.0} : T{0.0};
    }
  }
  return op == ReduceOp::min ? std::min(left, right) : std::max(left, right);
}

template <class T>
T canonical_tree(ReduceOp op, const std::vector<T>& operands, std::size_t first, std::size_t n) {
  if (n == 1) return operands[first];
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return combine(op, canonical_tree(op, operands, first, left),
                 canonical_tree(op, operands, first + left, n - left));
}

using Bytes = std::vector<std::byte>;

template <class From, class To>
Bytes expected_of(ReduceOp op, const std::vector<const std::byte*>& sources, std::size_t count) {
  Bytes result(count * sizeof(To));
  std::vector<ComputedIn<From>> operands(sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t s = 0; s < sources.size(); ++s) {
      From element;
      std::memcpy(&element, sources[s] + i * sizeof(From), sizeof(From));
      operands[s] = static_cast<ComputedIn<From>>(element);
    }
    const auto value = static_cast<To>(canonical_tree(op, operands, 0, operands.size()));
    std::memcpy(result.data() + i * sizeof(To), &value, sizeof(To));
  }
  return result;
}

/// What reduce() must write to each destination.
inline Bytes expected(const Reduction& reduction, const std::vector<const std::byte*>& sources,
                      std::size_t count) {
  if (sources.size() == 1 && reduction.from == reduction.to) {
    return Bytes(sources[0], sources[0] + count * size_of(reduction.from));
  }
  return visit(reduction.from, [&]<class From>(From) {
    if (reduction.to == reduction.from) {
      return expected_of<From, From>(reduction.op, sources, count);
    }
    if constexpr (sizeof(From) == 2) {
      return expected_of<From, float>(reduction.op, sources, count);
    } else if constexpr (std::is_same_v<From, float>) {
      return reduction.to == DType::float16
                 ? expected_of<float, Float16>(reduction.op, sources, count)
                 : expected_of<float, BFloat16>(reduction.op, sources, count);
    } else {
      return Bytes();
    }
  });
}

template <class T>
T special(std::size_t which) {
  if constexpr (std::is_integral_v<T>) {
    const T values[] = {0, 1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
    return values[which % 4];
  } else {
    using Computed = ComputedIn<T>;
    using Limits = std::numeric_limits<Computed>;
    const Computed values[] = {
        Computed{0},         -Computed{0},         Limits::infinity(),   -Limits::infinity(),
        Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::denorm_min(), -Limits::denorm_min() * 5};
    return static_cast<T>(values[which % 8]);
  }
}

/// Any bits, quarters of whole numbers, and one in eight a special value.
inline Bytes random_elements(DType type, std::size_t count, std::mt19937_64& random) {
  Bytes elements(count * size_of(type));
  for (std::byte& byte : elements) byte = static_cast<std::byte>(random());
  visit(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t dice = random();
      T value{};
      if (dice % 8 == 0) {
        value = special<T>(dice >> 8);
      } else if (!std::is_integral_v<T> && dice % 8 < 6) {
        value = static_cast<T>(static_cast<float>(static_cast<int>(dice >> 40)) / 4096.0f);
      } else {
        continue;  // any bits: NaNs with payload, subnormal and huge numbers
      }
      std::memcpy(elements.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return elements;
}

}  // namespace tutti::test
