// SPDX-License-Identifier: Apache-2.0
// Codecs with one or two bits per element. The packing loops are in quantise_loops.hpp. A table has
// the elements of each packed byte, so unpacking is a load and a store of a vector.
#include <array>
#include <cstring>

#include "collectives/compression/codec.hpp"
#include "collectives/compression/quantise.hpp"

namespace tutti::collectives {

namespace {

/// `kBits` is 1 or 2; `meaning` has the value of each code.
template <int kBits>
class BitCodec final : public Codec {
 public:
  static constexpr std::size_t kPerByte = 8 / kBits;

  BitCodec(float threshold, QuantiseKernels::Pack packs, QuantiseKernels::FeedBack feeds_back,
           const std::array<float, 1 << kBits>& meaning)
      : threshold_(threshold), pack_(packs), feed_back_(feeds_back) {
    for (std::size_t byte = 0; byte < values_.size(); ++byte) {
      for (std::size_t i = 0; i < kPerByte; ++i) {
        const std::size_t code = byte >> (8 - kBits * (i + 1)) & ((1u << kBits) - 1);
        values_[byte][i] = meaning[code];
      }
    }
  }

  [[nodiscard]] std::size_t packed_bytes(std::size_t count) const override {
    return (count + kPerByte - 1) / kPerByte;
  }
  void pack(const float* gradient, const float* residual, std::size_t count,
            std::byte* packed) const override {
    pack_(gradient, residual, count, threshold_, packed);
  }
  void feed_back(const float* gradient, float* residual, std::size_t count,
                 const std::byte* /*packed*/) const override {
    feed_back_(gradient, residual, count, threshold_);
  }
  void unpack(const std::byte* packed, PackedRange range, float* values) const override {
    packed += range.first / kPerByte;
    const std::size_t whole = range.count / kPerByte;
    for (std::size_t i = 0; i < whole; ++i, values += kPerByte) {
      std::memcpy(values, values_[std::to_integer<std::size_t>(packed[i])].data(), sizeof(Values));
    }
    if (const std::size_t rest = range.count % kPerByte; rest > 0) {
      const Values& last = values_[std::to_integer<std::size_t>(packed[whole])];
      std::memcpy(values, last.data(), rest * sizeof(float));
    }
  }

 private:
  using Values = std::array<float, kPerByte>;
  float threshold_;
  QuantiseKernels::Pack pack_;
  QuantiseKernels::FeedBack feed_back_;
  alignas(64) std::array<Values, 256> values_;
};

}  // namespace

std::unique_ptr<Codec> two_bit_codec(float threshold) {
  const QuantiseKernels& kernels = quantise();
  const std::array meaning{0.0f, 0.0f, -threshold, threshold};  // code 01 is never sent
  return std::make_unique<BitCodec<2>>(threshold, kernels.pack_two_bit, kernels.feed_back_two_bit,
                                       meaning);
}

std::unique_ptr<Codec> one_bit_codec(float threshold) {
  const QuantiseKernels& kernels = quantise();
  return std::make_unique<BitCodec<1>>(threshold, kernels.pack_one_bit, kernels.feed_back_one_bit,
                                       std::array{-1.0f, 1.0f});
}

}  // namespace tutti::collectives
