// SPDX-License-Identifier: Apache-2.0
// QuantiseKernels: the table of compiled loops over gradients and residuals of one instruction set,
// see quantise_loops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// All instruction sets give the same bits. In the comments, s = residual + gradient for each
/// element.
struct QuantiseKernels {
  using Pack = void (*)(const float* gradient, const float* residual, std::size_t count,
                        float threshold, std::byte* packed);
  /// Sets residual = s - the value of the packed element.
  using FeedBack = void (*)(const float* gradient, float* residual, std::size_t count,
                            float threshold);
  Pack pack_two_bit;
  Pack pack_one_bit;
  FeedBack feed_back_two_bit;
  FeedBack feed_back_one_bit;
  /// Computes the bits of abs(s) as integers, which have the same order as the magnitudes, and the
  /// largest of each kMagnitudeGroup of them. `count` is at most kMagnitudes.
  void (*magnitudes)(const float* gradient, const float* residual, std::size_t count,
                     std::int32_t* magnitudes, std::int32_t* largest);
  /// Sets residual = s.
  void (*accumulate)(const float* gradient, float* residual, std::size_t count);
};
inline constexpr std::size_t kMagnitudeGroup = 16;
inline constexpr std::size_t kMagnitudes = 2048;

const QuantiseKernels& plain_quantise() noexcept;
#if defined(__x86_64__)
const QuantiseKernels& avx2_quantise() noexcept;
const QuantiseKernels& avx512_quantise() noexcept;
#endif

/// Returns the kernels of the instruction set that reduce() uses on this machine.
const QuantiseKernels& quantise() noexcept;
/// For tests: returns null if this machine does not have the instruction set.
const QuantiseKernels* quantise_with(Isa isa) noexcept;

}  // namespace tutti::collectives
