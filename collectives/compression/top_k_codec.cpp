// SPDX-License-Identifier: Apache-2.0
// A codec that sends the largest elements with their indices.
//
// Selection reads the elements only once. A sample estimates a magnitude that somewhat more than k
// elements reach. These are collected, and the k largest of them are the k largest of all. If fewer
// than k were found, all elements are collected. So the sample affects the time, but not the
// result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "collectives/compression/codec.hpp"
#include "collectives/compression/quantise.hpp"

namespace tutti::collectives {

namespace {

struct Pair {
  std::uint32_t index;
  float value;
};
static_assert(sizeof(Pair) == 8 && std::endian::native == std::endian::little);

constexpr std::size_t kSample = 8192;

/// A magnitude and an index in one number. It increases with the magnitude, and among equal
/// magnitudes with a lower index.
using Candidate = std::uint64_t;
constexpr Candidate candidate(std::int32_t magnitude, std::size_t index) {
  return static_cast<Candidate>(magnitude) << 32 | (kMostTopK - index);
}
constexpr std::size_t index_of(Candidate one) { return kMostTopK - (one & kMostTopK); }

std::int32_t magnitude_of(float gradient, float residual) {
  return std::bit_cast<std::int32_t>(residual + gradient) & 0x7FFFFFFF;
}

/// Estimates a magnitude that about 1.3 k of the elements reach; 0 if the sample would be too
/// small.
std::int32_t likely_bound(const float* gradient, const float* residual, std::size_t count,
                          std::size_t k) {
  if (count < 4 * kSample) return 0;
  std::vector<std::int32_t> sample;
  const std::size_t step = count / kSample;
  for (std::size_t i = 0; i < kSample; ++i) {
    // Avoids sampling a single row or column of a matrix.
    const std::size_t at = i * step + i % step;
    sample.push_back(magnitude_of(gradient[at], residual[at]));
  }
  const double share = static_cast<double>(k) / static_cast<double>(count);
  const auto reach = static_cast<std::size_t>(1.3 * share * kSample) + 8;
  if (reach >= kSample) return 0;
  const auto bound = sample.begin() + static_cast<std::ptrdiff_t>(reach);
  std::nth_element(sample.begin(), bound, sample.end(), std::greater<>());
  return *bound;
}

/// Returns all elements of at least this magnitude, in the order of indices.
std::vector<Candidate> collect(const float* gradient, const float* residual, std::size_t count,
                               std::int32_t bound) {
  std::vector<Candidate> found;
  std::int32_t magnitudes[kMagnitudes];
  std::int32_t largest[kMagnitudes / kMagnitudeGroup];
  for (std::size_t begin = 0; begin < count; begin += kMagnitudes) {
    const std::size_t now = std::min(kMagnitudes, count - begin);
    quantise().magnitudes(gradient + begin, residual + begin, now, magnitudes, largest);
    for (std::size_t first = 0; first < now; first += kMagnitudeGroup) {
      if (largest[first / kMagnitudeGroup] < bound) continue;
      for (std::size_t i = first; i < std::min(now, first + kMagnitudeGroup); ++i) {
        if (magnitudes[i] >= bound) found.push_back(candidate(magnitudes[i], begin + i));
      }
    }
  }
  return found;
}

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(double ratio) : ratio_(ratio) {}

  [[nodiscard]] std::size_t packed_bytes(std::size_t count) const override {
    return pairs(count) * sizeof(Pair);
  }
  [[nodiscard]] bool can_cut() const override { return false; }

  void pack(const float* gradient, const float* residual, std::size_t count,
            std::byte* packed) const override {
    const std::size_t k = pairs(count);
    if (k == 0) return;
    std::vector<Candidate> found =
        collect(gradient, residual, count, likely_bound(gradient, residual, count, k));
    if (found.size() < k) found = collect(gradient, residual, count, 0);
    std::vector<Candidate> order = found;
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(order.begin(), last, order.end(), std::greater<>());
    for (const Candidate one : found) {
      if (one < *last) continue;
      const std::size_t index = index_of(one);
      const Pair pair{static_cast<std::uint32_t>(index), residual[index] + gradient[index]};
      std::memcpy(packed, &pair, sizeof pair);
      packed += sizeof pair;
    }
  }

  /// Elements that were sent were sent exactly, so nothing of them is left, even of an infinity.
  void feed_back(const float* gradient, float* residual, std::size_t count,
                 const std::byte* packed) const override {
    quantise().accumulate(gradient, residual, count);
    for (std::size_t i = 0; i < pairs(count); ++i) residual[pair_at(packed, i).index] = 0.0f;
  }

  void unpack(const std::byte* packed, PackedRange range, float* values) const override {
    std::fill_n(values, range.count, 0.0f);
    const std::size_t k = pairs(range.all);
    std::size_t i = 0;  // becomes the index of the first pair in the range
    for (std::size_t left = k; left > 0;) {
      const std::size_t half = left / 2;
      const bool is_before = pair_at(packed, i + half).index < range.first;
      if (is_before) i += half + 1;
      left = is_before ? left - half - 1 : half;
    }
    for (; i < k; ++i) {
      const Pair pair = pair_at(packed, i);
      if (pair.index - range.first >= range.count) break;
      values[pair.index - range.first] = pair.value;
    }
  }

 private:
  [[nodiscard]] std::size_t pairs(std::size_t count) const {
    const auto k = static_cast<std::size_t>(std::ceil(ratio_ * static_cast<double>(count)));
    return std::min(count, std::max<std::size_t>(k, 1));
  }
  static Pair pair_at(const std::byte* packed, std::size_t i) {
    Pair pair;
    std::memcpy(&pair, packed + i * sizeof pair, sizeof pair);
    return pair;
  }

  double ratio_;
};

}  // namespace

std::unique_ptr<Codec> top_k_codec(double ratio) { return std::make_unique<TopKCodec>(ratio); }

}  // namespace tutti::collectives
