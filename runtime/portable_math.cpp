// SPDX-License-Identifier: Apache-2.0
#include "runtime/portable_math.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace tutti {

namespace {

constexpr double kLog2 = std::numbers::ln2;
constexpr double kLog2Upper = 0x1.62e42fefa38p-1;     // times a small integer it is exact
constexpr double kLog2Lower = 0x1.ef35793c76730p-45;  // ln 2 - kLog2Upper

}  // namespace

double power(double base, std::uint64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

double power(double base, double exponent) {
  constexpr double kMostWhole = 4294967296.0;
  if (exponent <= kMostWhole && exponent == std::floor(exponent)) {
    return power(base, static_cast<std::uint64_t>(exponent));
  }
  return base < std::numeric_limits<double>::min() ? 0.0
                                                   : exponential(exponent * natural_log(base));
}

// value = 2^e * m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1)/(m + 1).
double natural_log(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (mantissa > std::numbers::sqrt2) {
    mantissa *= 0.5;
    exponent += 1.0;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  double series = 0.0;
  for (int term = 25; term >= 1; term -= 2) series = series * (s * s) + 1.0 / term;
  return exponent * kLog2Upper + (exponent * kLog2Lower + 2.0 * s * series);
}

double exponential(double value) {
  if (value < -708.0) return 0.0;
  const double doublings = std::floor(value / kLog2 + 0.5);
  const double rest = (value - doublings * kLog2Upper) - doublings * kLog2Lower;
  double series = 1.0;
  for (int term = 15; term >= 1; --term) series = 1.0 + series * rest / term;
  return std::ldexp(series, static_cast<int>(doublings));
}

double cosine_of_turns(double turns) {
  const double part = turns - std::floor(turns);
  const double half = part > 0.5 ? 1.0 - part : part;      // cos(-x) = cos(x)
  const double quarter = half > 0.25 ? 0.5 - half : half;  // cos(pi - x) = -cos(x)
  const double angle = 2.0 * std::numbers::pi * quarter;
  double series = 1.0;
  for (int term = 22; term >= 2; term -= 2) {
    series = 1.0 - series * (angle * angle) / (term * (term - 1));
  }
  return half > 0.25 ? -series : series;
}

}  // namespace tutti
