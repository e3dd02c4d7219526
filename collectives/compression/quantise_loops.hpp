// SPDX-License-Identifier: Apache-2.0
// The loops of gradient compression, written once as scalar code; every instruction set inlines
// them into functions of its own target, as reduce_loops.hpp does.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/compression/bit_rules.hpp"
#include "collectives/compression/quantise.hpp"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // below -O2 no loop is vectorised
#endif

namespace tutti::collectives {

/// The multiplier that moves code j of a word of kPerByte codes, at bits 8j, to its place in the
/// top byte. No other part of the product reaches that byte, and no codes overlap below it.
template <class Rule>
struct Gather;
template <>
struct Gather<TwoBitRule> {
  using Word = std::uint32_t;
  static constexpr Word kFactor = 0x40100401;  // to bits 6 - 2j
};
template <>
struct Gather<OneBitRule> {
  using Word = std::uint64_t;
  static constexpr Word kFactor = 0x8040201008040201;  // to bit 7 - j
};

/// Computes a tile of codes, one per byte, then packs kPerByte of them into a byte. Codes beyond
/// the end are 0.
template <class Rule>
[[gnu::always_inline]] inline void pack_loop(const float* gradient, const float* residual,
                                             std::size_t count, Rule rule,
                                             std::byte* packed) noexcept {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kCodes = 512;
  using Word = typename Gather<Rule>::Word;
  for (std::size_t begin = 0; begin < count; begin += kCodes) {
    const std::size_t now = std::min(kCodes, count - begin);
    const std::size_t bytes = (now + Rule::kPerByte - 1) / Rule::kPerByte;
    std::uint8_t codes[kCodes];
    std::memset(codes + (bytes - 1) * Rule::kPerByte, 0, Rule::kPerByte);  // codes of the last byte
    for (std::size_t i = 0; i < now; ++i) {
      codes[i] = rule.code(residual[begin + i] + gradient[begin + i]);
    }
    std::byte* const to = packed + begin / Rule::kPerByte;
    for (std::size_t b = 0; b < bytes; ++b) {
      Word word;
      std::memcpy(&word, codes + b * sizeof word, sizeof word);
      to[b] = static_cast<std::byte>((word * Gather<Rule>::kFactor) >> (8 * sizeof word - 8));
    }
  }
}

template <class Rule>
[[gnu::always_inline]] inline void feed_back_loop(const float* gradient, float* residual,
                                                  std::size_t count, Rule rule) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float s = residual[i] + gradient[i];
    residual[i] = s - rule.sent(s);
  }
}

[[gnu::always_inline]] inline void magnitudes_loop(const float* gradient, const float* residual,
                                                   std::size_t count, std::int32_t* magnitudes,
                                                   std::int32_t* largest) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    magnitudes[i] = std::bit_cast<std::int32_t>(residual[i] + gradient[i]) & 0x7FFFFFFF;
  }
  for (std::size_t begin = 0; begin < count; begin += kMagnitudeGroup) {
    const std::size_t end = std::min(count, begin + kMagnitudeGroup);
    std::int32_t most = 0;
    for (std::size_t i = begin; i < end; ++i) most = std::max(most, magnitudes[i]);
    *largest++ = most;
  }
}

[[gnu::always_inline]] inline void accumulate_loop(const float* gradient, float* residual,
                                                   std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) residual[i] = residual[i] + gradient[i];
}

}  // namespace tutti::collectives

/// Defines the functions of one instruction set and their table. An attribute cannot be a template
/// argument, so this has to be a macro.
#define TUTTI_DEFINE_QUANTISE(name, attribute)                                                 \
  namespace tutti::collectives {                                                               \
  namespace {                                                                                  \
  attribute void pack_two_bit(const float* gradient, const float* residual, std::size_t count, \
                              float threshold, std::byte* packed) {                            \
    pack_loop(gradient, residual, count, TwoBitRule{threshold}, packed);                       \
  }                                                                                            \
  attribute void pack_one_bit(const float* gradient, const float* residual, std::size_t count, \
                              float threshold, std::byte* packed) {                            \
    pack_loop(gradient, residual, count, OneBitRule{threshold}, packed);                       \
  }                                                                                            \
  attribute void feed_back_two_bit(const float* gradient, float* residual, std::size_t count,  \
                                   float threshold) {                                          \
    feed_back_loop(gradient, residual, count, TwoBitRule{threshold});                          \
  }                                                                                            \
  attribute void feed_back_one_bit(const float* gradient, float* residual, std::size_t count,  \
                                   float threshold) {                                          \
    feed_back_loop(gradient, residual, count, OneBitRule{threshold});                          \
  }                                                                                            \
  attribute void magnitudes(const float* gradient, const float* residual, std::size_t count,   \
                            std::int32_t* all, std::int32_t* largest) {                        \
    magnitudes_loop(gradient, residual, count, all, largest);                                  \
  }                                                                                            \
  attribute void accumulate(const float* gradient, float* residual, std::size_t count) {       \
    accumulate_loop(gradient, residual, count);                                                \
  }                                                                                            \
  constexpr QuantiseKernels kKernels{pack_two_bit,      pack_one_bit, feed_back_two_bit,       \
                                     feed_back_one_bit, magnitudes,   accumulate};             \
  }                                                                                            \
  const QuantiseKernels& name() noexcept { return kKernels; }                                  \
  }
