// SPDX-License-Identifier: Apache-2.0
// Conversions between float32 and the two 16-bit floating-point types, on bit patterns.
//
// They have no branches, so that a compiler can vectorise a loop around them, and no intermediate
// value that a flush-to-zero mode would change. Widening preserves the payload of a NaN; narrowing
// to 16 bits maps every NaN to the same one, quiet and positive.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti::collectives {

/// Evaluates `condition ? yes : no` by masks. For a conditional operator a compiler may move the
/// arithmetic of one side into a branch, and then does not vectorise it (g++ for AVX2).
[[gnu::always_inline]] constexpr std::uint32_t select(bool condition, std::uint32_t yes,
                                                      std::uint32_t no) noexcept {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

[[gnu::always_inline]] constexpr float float_from_bfloat16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

[[gnu::always_inline]] constexpr std::uint16_t bfloat16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // Adds half of the last place kept, or one less if that place is even, so that ties go to even. A
  // carry out of the mantissa correctly raises the exponent, up to infinity.
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(select((bits & 0x7FFFFFFFu) > 0x7F800000u, 0x7FC0u, rounded));
}

[[gnu::always_inline]] constexpr float float_from_float16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  // Normal numbers, infinity and NaN: the mantissa moves up by 13 places. The exponent's bias is so
  // large that 31 becomes 255, and a multiplication scales the finite numbers back.
  const float scaled = std::bit_cast<float>((magnitude << 13) + (0xE0u << 23)) * 0x1p-112f;
  // Subnormal numbers: the mantissa counts units of 2^-24, which are the last places of 0.5 ..< 1.
  const float counted = std::bit_cast<float>(magnitude | (126u << 23)) - 0.5f;
  const std::uint32_t result = select(magnitude < 0x0400u, std::bit_cast<std::uint32_t>(counted),
                                      std::bit_cast<std::uint32_t>(scaled));
  return std::bit_cast<float>(sign | result);
}

[[gnu::always_inline]] constexpr std::uint16_t float16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // The arithmetic below turns 2^16 into infinity, so all larger values are clamped to it.
  const std::uint32_t clamped = select(magnitude < (143u << 23), magnitude, 143u << 23);
  // The power of two at or below the value; for a subnormal result that of the smallest normal
  // number.
  const std::uint32_t power = select(clamped < (113u << 23), 113u << 23, clamped & 0x7F800000u);
  // Adding a number 2^13 times as large leaves the value 10 places, so the addition rounds it.
  const std::uint32_t larger = power + (13u << 23);
  const float sum = std::bit_cast<float>(clamped) + std::bit_cast<float>(larger);
  // Including the leading 1.
  const std::uint32_t places = std::bit_cast<std::uint32_t>(sum) - larger;
  const std::uint32_t number = ((power - (113u << 23)) >> 13) + places;
  return static_cast<std::uint16_t>(select(magnitude > 0x7F800000u, 0x7E00u, sign | number));
}

}  // namespace tutti::collectives
