// SPDX-License-Identifier: Apache-2.0
#include "tutti/dtype.hpp"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tutti/error.hpp"

using namespace tutti;

namespace {

// The formats by their definition, in exact double arithmetic: the independent opinion.
struct Format {
  int mantissa_bits;
  int exponent_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int largest_exponent() const { return (1 << exponent_bits) - 1; }

  [[nodiscard]] double value(std::uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = bits >> mantissa_bits & largest_exponent();
    const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
    if (exponent == largest_exponent()) {
      return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    }
    const int leading = exponent != 0 ? 1 << mantissa_bits : 0;
    const int power = std::max(exponent, 1) - bias() - mantissa_bits;
    return sign * std::ldexp(leading + mantissa, power);
  }

  // Nearest, ties to even, by counting units of the last place.
  [[nodiscard]] std::uint16_t round(float number) const {
    const auto sign = static_cast<std::uint16_t>(std::signbit(number) ? 0x8000 : 0);
    const double size = std::fabs(static_cast<double>(number));
    const int infinity = largest_exponent() << mantissa_bits;
    if (std::isnan(number)) return static_cast<std::uint16_t>(infinity | 1 << (mantissa_bits - 1));
    if (std::isinf(number)) return static_cast<std::uint16_t>(sign | infinity);
    if (size == 0) return sign;
    const int power = std::max(std::ilogb(size), 1 - bias());
    const double units = std::nearbyint(std::ldexp(size, mantissa_bits - power));
    const double bits =
        units + std::ldexp(power + bias() - 1, mantissa_bits);  // a carry raises the exponent
    return static_cast<std::uint16_t>(sign | static_cast<int>(std::fmin(bits, infinity)));
  }
};

constexpr Format kBinary16{10, 5};
constexpr Format kUpperHalf{7, 8};

template <class Half>
void check_widening(const Format& format) {
  std::vector<int> wrong;
  for (int bits = 0; bits <= 0xFFFF; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const float widened = static_cast<float>(half);
    const double expected = format.value(half.bits);
    const bool same = std::isnan(expected) ? std::isnan(widened) : widened == expected;
    if (!same || std::signbit(widened) != (bits >> 15 != 0)) wrong.push_back(bits);
  }
  CHECK(wrong == std::vector<int>());
}

template <class Half>
void check_rounding(const Format& format, std::uint32_t float_bits) {
  const float number = std::bit_cast<float>(float_bits);
  const Half rounded(number);
  if (rounded.bits != format.round(number)) {
    CAPTURE(float_bits);
    REQUIRE(rounded.bits == format.round(number));
  }
}

template <class Half>
void check_rounding_everywhere(const Format& format) {
  // Around every value of the format and every tie between two, and at random.
  for (std::uint32_t half = 0; half <= 0xFFFF; ++half) {
    Half exact;
    exact.bits = static_cast<std::uint16_t>(half);
    const auto middle = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
    for (const std::uint32_t offset : {0u, 1u, ~0u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u,
                                       0x8001u, 0x800000u, 0x400000u, 0x400001u, 0x600000u}) {
      check_rounding<Half>(format, middle + offset);
    }
  }
  std::mt19937 random(1);  // always the same numbers
  for (int i = 0; i < 1'000'000; ++i)
    check_rounding<Half>(format, static_cast<std::uint32_t>(random()));
}

}  // namespace

TEST_CASE("float16 widens to the number that its bits mean") { check_widening<Float16>(kBinary16); }

TEST_CASE("bfloat16 widens to the number that its bits mean") {
  check_widening<BFloat16>(kUpperHalf);
}

TEST_CASE("float16 rounds to nearest even: subnormals, infinity and NaN included") {
  check_rounding_everywhere<Float16>(kBinary16);
}

TEST_CASE("bfloat16 rounds to nearest even: subnormals, infinity and NaN included") {
  check_rounding_everywhere<BFloat16>(kUpperHalf);
}

TEST_CASE("float16 has the well-known bit patterns") {
  CHECK(Float16(1.0f).bits == 0x3C00);
  CHECK(Float16(-2.0f).bits == 0xC000);
  CHECK(Float16(65504.0f).bits == 0x7BFF);
  CHECK(Float16(65519.996f).bits == 0x7BFF);
  CHECK(Float16(65520.0f).bits == 0x7C00);
  CHECK(Float16(0x1p-24f).bits == 0x0001);
  CHECK(Float16(0x1p-25f).bits == 0x0000);
  CHECK(Float16(0x1.8p-24f).bits == 0x0002);
  CHECK(Float16(-0.0f).bits == 0x8000);
}

TEST_CASE("parse_dtype is the inverse of to_string") {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                            DType::int8, DType::uint8, DType::int32, DType::int64}) {
    CHECK(parse_dtype(to_string(dtype)) == dtype);
  }
  CHECK(std::string(to_string(DType::bfloat16)) == "bfloat16");
  CHECK(std::string(to_string(DType::uint8)) == "uint8");
}

TEST_CASE("parse_dtype refuses an unknown name with the list of names") {
  try {
    parse_dtype("float");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(std::string(error.what()) ==
          "unknown element type 'float'; expected one of float16, bfloat16, float32, float64, "
          "int8, uint8, int32, int64");
  }
}

TEST_CASE("an error code has a name and an exit code") {
  CHECK(std::string(to_string(ErrorCode::mismatch)) == "mismatch");
  CHECK(std::string(to_string(ErrorCode::corrupt_file)) == "corrupt_file");
  CHECK(exit_code(ErrorCode::invalid_argument) == 1);
  CHECK(exit_code(ErrorCode::timeout) == 4);
  CHECK(exit_code(ErrorCode::divergence) == 3);
  CHECK(std::string(to_string(ErrorCode::divergence)) == "divergence");
  for (const ErrorCode code :
       {ErrorCode::mismatch, ErrorCode::communication, ErrorCode::out_of_memory, ErrorCode::io,
        ErrorCode::corrupt_file, ErrorCode::user_code}) {
    CHECK(exit_code(code) == 2);
  }
}
