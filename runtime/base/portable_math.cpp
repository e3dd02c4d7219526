// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/portable_math.hpp"

#include <cmath>
#include <limits>

namespace tutti {

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

double exponential(double value) {
  if (value < -708.0) return 0.0;
  const double doublings = std::floor(value / std::numbers::ln2 + 0.5);
  const double rest = (value - doublings * series::kLog2Upper) - doublings * series::kLog2Lower;
  double sum = 1.0;
  for (int term = 15; term >= 1; --term) sum = 1.0 + sum * rest / term;
  return std::ldexp(sum, static_cast<int>(doublings));
}

}  // namespace tutti
