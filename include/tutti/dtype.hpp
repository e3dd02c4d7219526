// SPDX-License-Identifier: Apache-2.0
// Element types, and the two 16-bit floating-point types that C++20 has no name for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tutti/export.h"

namespace tutti {

enum class DType : std::uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int8,
  uint8,
  int32,
  int64,
};

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
      return 1;
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
    case DType::int64:
      return 8;
  }
  return 0;
}

/// The name of the type, such as "float32".
TUTTI_API const char* to_string(DType dtype) noexcept;

/// The inverse of to_string. Errors: invalid_argument, with the list of names.
TUTTI_API DType parse_dtype(std::string_view name);

/// IEEE 754 binary16. Converts to and from float, rounding to nearest even.
struct TUTTI_API Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) noexcept;
  explicit operator float() const noexcept;
  friend bool operator==(Float16, Float16) = default;  // compares bits
};

/// The upper half of a binary32. Converts to and from float, rounding to nearest even.
struct TUTTI_API BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) noexcept;
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend bool operator==(BFloat16, BFloat16) = default;  // compares bits
};

/// Maps a C++ type to its DType; only the eight element types have one.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::int8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// One of the eight element types.
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};

/// Calls `visitor` with a value of the element type, so that generic code can be written once:
/// `visit(dtype, [&]<class T>(T) { ... });`
template <class Visitor>
decltype(auto) visit(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::float16:
      return visitor(Float16{});
    case DType::bfloat16:
      return visitor(BFloat16{});
    case DType::float32:
      return visitor(float{});
    case DType::float64:
      return visitor(double{});
    case DType::int8:
      return visitor(std::int8_t{});
    case DType::uint8:
      return visitor(std::uint8_t{});
    case DType::int32:
      return visitor(std::int32_t{});
    case DType::int64:
      break;
  }
  return visitor(std::int64_t{});
}

}  // namespace tutti
