// SPDX-License-Identifier: Apache-2.0
// Codec: the lossy formats of float32 elements in which gradients travel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tutti/dtype.hpp"

namespace tutti::collectives {

/// Elements first .. first + count - 1 of `all` elements that were packed together.
struct PackedRange {
  std::size_t all;
  std::size_t first;
  std::size_t count;
};

/// A format. It is stateless: the caller keeps the residual, which is what a sender has not sent
/// yet. For a sender's elements g and residual r, a step is
///   s = r + g;   pack() sends q(s);   feed_back() sets r = s - q(s)
/// in two halves, so that an abandoned step leaves r unchanged.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Returns the size of `count` elements that are packed together.
  [[nodiscard]] virtual std::size_t packed_bytes(std::size_t count) const = 0;
  /// True if a tensor that is cut at multiples of kCut elements is packed into the same bytes as
  /// the whole tensor. False if elements compete, so that a part would select other elements than
  /// the whole.
  [[nodiscard]] virtual bool can_cut() const { return true; }
  static constexpr std::size_t kCut = 8;
  /// True if there is feedback. Otherwise `residual` is ignored, and q(g) is sent.
  [[nodiscard]] virtual bool has_residual() const { return true; }

  /// Packs residual + gradient, element by element, without changing them. Both have `count`
  /// elements.
  virtual void pack(const float* gradient, const float* residual, std::size_t count,
                    std::byte* packed) const = 0;
  /// Sets residual = residual + gradient - what was sent, after pack() of the same elements.
  virtual void feed_back(const float* gradient, float* residual, std::size_t count,
                         const std::byte* packed) const = 0;
  /// Writes range.count elements; range.first must be a multiple of kCut.
  virtual void unpack(const std::byte* packed, PackedRange range, float* values) const = 0;

  /// Temporary memory of sum(), kept from one call to the next.
  struct Workspace {
    std::vector<float> tiles;
    std::vector<const std::byte*> sources;
  };
  /// Sums a range of at most kTile elements over all senders, in the canonical order of reduce().
  virtual void sum(std::span<const std::byte* const> packed, PackedRange range,
                   Workspace& workspace, float* sums) const;
  static constexpr std::size_t kTile = 2048;
};

/// +threshold, -threshold or 0 in two bits: 11, 10, 00; four elements to a byte, the first in the
/// most significant bits. +threshold is sent for s >= threshold, -threshold for s <= -threshold.
/// Source  Wen et al., "TernGrad", NIPS 2017; the error feedback: Seide et al., below.
std::unique_ptr<Codec> two_bit_codec(float threshold);

/// +1 or -1 in a bit, 1 and 0; eight elements to a byte, the first in the most significant bit. +1
/// is sent for s > threshold. Source  Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient
/// descent", Interspeech 2014.
std::unique_ptr<Codec> one_bit_codec(float threshold);

/// Rounded to float16 or bfloat16, to the nearest, ties to even. No residual.
std::unique_ptr<Codec> half_codec(DType dtype);

/// The max(1, ceil(ratio * count)) elements of largest magnitude, in the order of their indices:
/// (index, value) pairs of a 32-bit integer and a float32, little-endian. Of equal magnitudes the
/// lower index is taken; a NaN counts as larger than all numbers. The rest stays in the residual.
/// Source  Aji, Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017.
std::unique_ptr<Codec> top_k_codec(double ratio);

/// The largest number of elements for top-k.
inline constexpr std::size_t kMostTopK = 0xFFFFFFFF;

}  // namespace tutti::collectives
