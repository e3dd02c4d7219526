// SPDX-License-Identifier: Apache-2.0
// Elementary functions that consist only of + - * /. Those of libm differ between machines in the
// last place, and ranks whose learning rates differ in the last place no longer have equal weights.
//
// The inline functions have no branches, so that a compiler can vectorise a loop around them, and
// also run on a GPU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>

#include "runtime/base/on_any.hpp"

namespace tutti {

/// Computes a power by repeated squaring.
double power(double base, std::uint64_t exponent);
/// Computes a power for base >= 0 and exponent > 0.
double power(double base, double exponent);

/// Computes e^value; returns 0 below the smallest normal number.
double exponential(double value);

/// Converts numbers below 2^52 exactly.
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double small_to_double(std::uint64_t number) {
  return std::bit_cast<double>(number | 0x4330000000000000u) - 0x1p52;
}

namespace series {

// Exact when multiplied by a small integer.
inline constexpr double kLog2Upper = 0x1.62e42fefa38p-1;
inline constexpr double kLog2Lower = 0x1.ef35793c76730p-45;  // ln 2 - kLog2Upper

/// 1 + z/3 + z^2/5 + ... + z^12/25
template <std::size_t... I>
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double artanh(double z,
                                                              std::index_sequence<I...> /*terms*/) {
  double sum = 0.0;
  ((sum = sum * z + 1.0 / (25.0 - 2.0 * I)), ...);
  return sum;
}

/// 1 - z/2! + z^2/4! - ... + z^11/22!
template <std::size_t... I>
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double cosine(double z,
                                                              std::index_sequence<I...> /*terms*/) {
  double sum = 1.0;
  ((sum = 1.0 - sum * z * (1.0 / ((22.0 - 2.0 * I) * (21.0 - 2.0 * I)))), ...);
  return sum;
}

}  // namespace series

/// The natural logarithm of a positive, normal number.
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double natural_log(double value) {
  // value = 2^e * m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1)/(m + 1).
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const double upper = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  const bool halved = upper > std::numbers::sqrt2;
  const double mantissa = upper * (halved ? 0.5 : 1.0);
  const double exponent = small_to_double(bits >> 52) - (halved ? 1022.0 : 1023.0);
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double sum = series::artanh(s * s, std::make_index_sequence<13>());
  return exponent * series::kLog2Upper + (exponent * series::kLog2Lower + 2.0 * s * sum);
}

/// cos(2 pi turn) for 0 <= turn <= 1.
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double cosine_of_turn(double turn) {
  const double half = turn > 0.5 ? 1.0 - turn : turn;      // cos(-x) = cos(x)
  const double quarter = half > 0.25 ? 0.5 - half : half;  // cos(pi - x) = -cos(x)
  const double angle = 2.0 * std::numbers::pi * quarter;
  const double sum = series::cosine(angle * angle, std::make_index_sequence<11>());
  return sum * (half > 0.25 ? -1.0 : 1.0);
}

}  // namespace tutti
