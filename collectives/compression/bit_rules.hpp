// SPDX-License-Identifier: Apache-2.0
// The rules of formats with one or two bits per element, for CPU and GPU. In these, s is residual +
// gradient.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "collectives/kernels/reduce_float16.hpp"

namespace tutti::collectives {

/// Codes: 11 for +threshold, 10 for -threshold, 00 for 0.
struct TwoBitRule {
  static constexpr std::size_t kPerByte = 4;
  float threshold;

  [[gnu::always_inline]] constexpr std::uint8_t code(float s) const noexcept {
    return static_cast<std::uint8_t>((s >= threshold ? 3 : 0) | (s <= -threshold ? 2 : 0));
  }
  [[gnu::always_inline]] constexpr float sent(float s) const noexcept {
    const std::uint32_t plus = select(s >= threshold, std::bit_cast<std::uint32_t>(threshold), 0);
    const std::uint32_t minus =
        select(s <= -threshold, std::bit_cast<std::uint32_t>(-threshold), 0);
    return std::bit_cast<float>(plus | minus);
  }
};

/// Codes: 1 for +1, 0 for -1.
struct OneBitRule {
  static constexpr std::size_t kPerByte = 8;
  float threshold;

  [[gnu::always_inline]] constexpr std::uint8_t code(float s) const noexcept {
    return s > threshold ? 1 : 0;
  }
  [[gnu::always_inline]] constexpr float sent(float s) const noexcept {
    return std::bit_cast<float>(select(s > threshold, 0x3F800000u, 0xBF800000u));
  }
};

}  // namespace tutti::collectives
