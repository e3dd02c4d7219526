// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/portable_math.hpp"

#include <cmath>
#include <doctest/doctest.h>
#include <numbers>
#include <random>

namespace {
bool close(double found, double expected, double tolerance = 4e-15) {
  return std::abs(found - expected) <= tolerance * std::max(1.0, std::abs(expected));
}
}  // namespace

TEST_CASE("logarithm, exponential, power and cosine agree with libm to the last places") {
  std::mt19937_64 engine(3);
  std::uniform_real_distribution<double> exponent(-700, 700);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 100000; ++i) {
    const double x = exponent(engine);
    const double value = std::exp(x);
    REQUIRE(close(tutti::natural_log(value), std::log(value)));
    REQUIRE(close(tutti::exponential(x) / value, 1));
    const double base = unit(engine);
    const double power = 10 * unit(engine);
    REQUIRE(close(tutti::power(base, power), std::pow(base, power)));
    const double turn = unit(engine);
    REQUIRE(close(tutti::cosine_of_turn(turn), std::cos(2 * std::numbers::pi * turn)));
  }
}

TEST_CASE("the ends: logarithm of 1, cosine of quarters, powers of 0 and whole powers") {
  CHECK(tutti::natural_log(1.0) == 0.0);
  CHECK(close(tutti::natural_log(0x1p-32), -32 * std::numbers::ln2));
  CHECK(tutti::exponential(0.0) == 1.0);
  CHECK(tutti::exponential(-1000.0) == 0.0);
  CHECK(tutti::cosine_of_turn(0.0) == 1.0);
  CHECK(tutti::cosine_of_turn(0.5) == -1.0);
  CHECK(tutti::cosine_of_turn(1.0) == 1.0);
  CHECK(tutti::small_to_double((std::uint64_t{1} << 52) - 1) == 4503599627370495.0);
  CHECK(std::abs(tutti::cosine_of_turn(0.25)) < 1e-16);
  CHECK(std::abs(tutti::cosine_of_turn(0.75)) < 1e-16);
  CHECK(tutti::power(0.0, 0.5) == 0.0);
  CHECK(tutti::power(0.0, 2.0) == 0.0);
  CHECK(tutti::power(2.0, 10.0) == 1024.0);
  CHECK(tutti::power(0.5, std::uint64_t{3}) == 0.125);
  CHECK(tutti::power(7.0, std::uint64_t{0}) == 1.0);
}
