// SPDX-License-Identifier: Apache-2.0
// Arithmetic on single elements of any type, and conversions between types. Results are the same on
// a CPU and on a GPU, and defined for every value.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tutti/dtype.hpp"

#include "collectives/kernels/reduce_float16.hpp"
#include "runtime/base/on_any.hpp"

namespace tutti::elements {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The type in which arithmetic on T is done. Unsigned integers wrap where signed ones would
// overflow; all use 64 bits, whose lowest bits are the same for any width.
template <class T>
using ComputedIn = std::conditional_t<is_half<T>, float,
                                      std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>>;

/// Preserves the sign and payload of a NaN, as x86 does; arithmetic on a GPU maps every NaN to the
/// same one.
TUTTI_HOST_DEVICE inline float widened(Float16 value) {
#ifdef __CUDA_ARCH__
  if ((value.bits & 0x7FFFu) > 0x7C00u) {
    const std::uint32_t bits = value.bits;
    return std::bit_cast<float>((bits & 0x8000u) << 16 | 0x7FC00000u | (bits & 0x03FFu) << 13);
  }
#endif
  return collectives::float_from_float16(value.bits);
}
TUTTI_HOST_DEVICE inline float widened(BFloat16 value) {
  return collectives::float_from_bfloat16(value.bits);
}

/// Rounds to the nearest value, ties to even.
template <class Half>
TUTTI_HOST_DEVICE Half rounded(float value) {
  Half half;
  if constexpr (std::is_same_v<Half, Float16>) {
    half.bits = collectives::float16_from_float(value);
  } else {
    half.bits = collectives::bfloat16_from_float(value);
  }
  return half;
}

// Unlike the built-in conversion, this is defined for every value: NaN becomes 0, and values out of
// range become the nearest bound.
template <class To, class From>
TUTTI_HOST_DEVICE To float_to_integer(From value) {
  constexpr From kBelow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From kAbove =
      From{2} * static_cast<From>(std::uint64_t{1} << (std::numeric_limits<To>::digits - 1));
  if (value != value) return 0;
  if (value <= kBelow) return std::numeric_limits<To>::min();
  if (value >= kAbove) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

/// Converts between float32 and float64, and preserves the sign and payload of a NaN.
template <class To, class From>
TUTTI_HOST_DEVICE To between_floats(From value) {
#ifdef __CUDA_ARCH__
  if (value != value) {
    if constexpr (std::is_same_v<To, float>) {
      const auto bits = std::bit_cast<std::uint64_t>(value);
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 63) << 31 | 0x7FC00000u |
                                  (static_cast<std::uint32_t>(bits >> 29) & 0x007FFFFFu));
    } else {
      const std::uint64_t bits = std::bit_cast<std::uint32_t>(value);
      return std::bit_cast<double>(bits >> 31 << 63 | std::uint64_t{0x7FF8} << 48 |
                                   (bits & 0x007FFFFFu) << 29);
    }
  }
#endif
  return static_cast<To>(value);
}

template <class To, class From>
TUTTI_HOST_DEVICE To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_half<From>) {
    return convert<To>(widened(value));
  } else if constexpr (is_half<To>) {
    return rounded<To>(convert<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return float_to_integer<To>(value);
  } else if constexpr (std::is_floating_point_v<To> && std::is_floating_point_v<From>) {
    return between_floats<To>(value);
  } else {
    return static_cast<To>(value);  // between integers, which wrap
  }
}

/// Converts a factor to the type in which arithmetic is done. For integers it is truncated, and may
/// be -1 even if they are unsigned.
template <class T>
ComputedIn<T> convert_factor(double factor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::uint64_t>(float_to_integer<std::int64_t>(factor));
  } else {
    return static_cast<ComputedIn<T>>(factor);
  }
}

template <class T>
TUTTI_HOST_DEVICE ComputedIn<T> computed(T value) {
  if constexpr (is_half<T>) {
    return widened(value);
  } else {
    return static_cast<ComputedIn<T>>(value);
  }
}

template <class T>
TUTTI_HOST_DEVICE T stored(ComputedIn<T> value) {
  if constexpr (is_half<T>) {
    return rounded<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace tutti::elements
