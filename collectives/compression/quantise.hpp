// SPDX-License-Identifier: Apache-2.0
// The table of compiled loops over gradients and residuals: one for each instruction set, see
// quantise_loops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// All give the same bits. s = residual + gradient, element by element.
struct QuantiseKernels {
  using Pack = void (*)(const float* gradient, const float* residual, std::size_t count,
                        float threshold, std::byte* packed);
  /// residual = s - what the packed element stands for.
  using FeedBack = void (*)(const float* gradient, float* residual, std::size_t count,
                            float threshold);
  Pack pack_two_bit;
  Pack pack_one_bit;
  FeedBack feed_back_two_bit;
  FeedBack feed_back_one_bit;
  /// The bits of abs(s) as integers, which are in the order of the magnitudes; and the largest of
  /// each kMagnitudeGroup of them. `count` is at most kMagnitudes.
  void (*magnitudes)(const float* gradient, const float* residual, std::size_t count,
                     std::int32_t* magnitudes, std::int32_t* largest);
  /// residual = s.
  void (*accumulate)(const float* gradient, float* residual, std::size_t count);
};
inline constexpr std::size_t kMagnitudeGroup = 16;
inline constexpr std::size_t kMagnitudes = 2048;

const QuantiseKernels& plain_quantise() noexcept;
#if defined(__x86_64__)
const QuantiseKernels& avx2_quantise() noexcept;
const QuantiseKernels& avx512_quantise() noexcept;
#endif

/// The kernels of the instruction set that reduce() chose on this machine.
const QuantiseKernels& quantise() noexcept;
/// For tests: null if this machine does not have the instruction set.
const QuantiseKernels* quantise_with(Isa isa) noexcept;

}  // namespace tutti::collectives
