// SPDX-License-Identifier: Apache-2.0
// Sums of 16-bit floats: by the instructions that a GPU has for them, with the bits of a CPU's
// sums.
#pragma once

#include <bit>
#include <limits>
#include <type_traits>

#include "runtime/base/elements.hpp"

namespace tutti::gpus::kernels {

/// The type in which a sum of T is computed. Integers keep their width: they wrap.
template <class T>
using SummedIn =
    std::conditional_t<elements::is_half<T>, float,
                       typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                                   std::type_identity<T>>::type>;

template <class T>
TUTTI_HOST_DEVICE SummedIn<T> widen(T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Float16>) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
  }
#endif
  if constexpr (elements::is_half<T>) {
    return elements::widened(value);
  } else {
    return static_cast<SummedIn<T>>(value);
  }
}

/// Rounds a sum to T. Every NaN becomes the one that a CPU's kernels store.
template <class T>
TUTTI_HOST_DEVICE T narrow(SummedIn<T> value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Float16>) {
    T half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
    if (value != value) half.bits = 0x7E00u;
    return half;
  }
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>) {
    T half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
    if (value != value) half.bits = 0x7FC0u;
    return half;
  }
#endif
#endif
  if constexpr (elements::is_half<T>) {
    return elements::rounded<T>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return value == value ? value : std::numeric_limits<T>::quiet_NaN();
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace tutti::gpus::kernels
