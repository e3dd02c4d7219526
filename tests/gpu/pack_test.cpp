// SPDX-License-Identifier: Apache-2.0
// What gradient compression sends and keeps, packed by kernels with the bits of the codecs.
#include <bit>
#include <cmath>
#include <cstdint>
#include <doctest/doctest.h>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/compression/codec.hpp"
#include "tests/gpu/rig.hpp"

using test::DeviceTensor;
using tutti::DType;
using tutti::Tensor;
using tutti::collectives::Codec;
using tutti::gpus::Packing;
using tutti::gpus::TensorRow;
using Format = tutti::gpus::Packing::Format;

namespace {

struct PackCase {
  const char* name;
  Packing packing;
  std::unique_ptr<Codec> codec;
};

std::vector<PackCase> pack_cases() {
  namespace codecs = tutti::collectives;
  std::vector<PackCase> cases;
  cases.push_back({"2bit", {Format::two_bit, 0.5f}, codecs::two_bit_codec(0.5f)});
  cases.push_back({"1bit", {Format::one_bit, 0.25f}, codecs::one_bit_codec(0.25f)});
  // Zeros behind the end would be above this one.
  cases.push_back({"1bit below 0", {Format::one_bit, -0.5f}, codecs::one_bit_codec(-0.5f)});
  cases.push_back({"fp16", {Format::float16}, codecs::half_codec(DType::float16)});
  cases.push_back({"bf16", {Format::bfloat16}, codecs::half_codec(DType::bfloat16)});
  return cases;
}

/// Ties, both zeros, what rounds to even or overflows in 16 bits, and what is not finite.
constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kSpecial[] = {
    0.5f,     -0.5f,    0.25f,  -0.25f,  0.0f,  -0.0f,   kInfinite,   -kInfinite,     kNotANumber,
    65519.9f, 65520.0f, 1e-45f, -1e-40f, 6e-8f, 2049.0f, 1.00390625f, 0x1.fffffep127f};

/// Random numbers, with a special one in every fifth place.
Tensor gradient_of(std::int64_t count, int seed) {
  Tensor tensor = test::random_tensor({count}, DType::float32, seed, 11);
  for (std::size_t i = 0; i < tensor.count(); i += 5) {
    tensor.values<float>()[i] =
        kSpecial[(i / 5 + static_cast<std::size_t>(seed)) % std::size(kSpecial)];
  }
  return tensor;
}

/// Some of its elements reach a threshold exactly, with a gradient of 0.
Tensor residual_of(std::int64_t count) {
  Tensor tensor = test::random_tensor({count}, DType::float32, 77, 13);
  for (std::size_t i = 0; i < tensor.count(); i += 4) {
    tensor.values<float>()[i] = kSpecial[i / 4 % 6];
  }
  return tensor;
}

/// NaNs are alike: a GPU gives one for all.
bool alike(const Tensor& left, const Tensor& right) {
  for (std::size_t i = 0; i < left.count(); ++i) {
    const float a = left.values<float>()[i];
    const float b = right.values<float>()[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b)) return false;
  }
  return true;
}

/// A row whose packed bytes begin `offset` units behind an aligned address, and its tensors so many
/// elements; with what must be sent and kept.
class PackRow {
 public:
  PackRow(test::Rig& rig, const PackCase& how, std::int64_t count, int num_inputs,
          std::size_t offset)
      : how_(how), count_(static_cast<std::size_t>(count)), kept_(residual_of(count)) {
    std::vector<Tensor> values;
    for (int i = 0; i < num_inputs; ++i) {
      values.push_back(gradient_of(count, i));
      inputs_.push_back(std::make_unique<DeviceTensor>(rig, values.back(), offset));
    }
    residual_ = std::make_unique<DeviceTensor>(rig, kept_, offset);
    gradient_ = test::sum_in_order(values);
    const auto bytes = static_cast<std::int64_t>(how.codec->packed_bytes(count_));
    const std::size_t unit = how.packing.has_residual() ? 1 : 2;
    packed_ = std::make_unique<DeviceTensor>(rig, Tensor::full({bytes}, 0xEE, DType::uint8),
                                             offset * unit);
    row = {.num_inputs = num_inputs, .output = packed_->data(), .count = count_};
    for (int i = 0; i < num_inputs; ++i) row.inputs[i] = inputs_[i]->data();
    if (how.packing.has_residual()) row.states[0] = residual_->data();
  }

  /// What is sent next is right, and nothing is taken from the residual yet.
  [[nodiscard]] bool is_packed() const {
    Tensor sent =
        Tensor::zeros({static_cast<std::int64_t>(how_.codec->packed_bytes(count_))}, DType::uint8);
    how_.codec->pack(gradient_.values<float>().data(), kept_.values<float>().data(), count_,
                     sent.bytes());
    return test::same_bytes(packed_->read(), sent) && packed_->is_guarded() &&
           alike(residual_->read(), kept_);
  }
  [[nodiscard]] bool is_fed_back() {
    how_.codec->feed_back(gradient_.values<float>().data(), kept_.values<float>().data(), count_,
                          nullptr);
    return alike(residual_->read(), kept_) && residual_->is_guarded();
  }

  TensorRow row;

 private:
  const PackCase& how_;
  std::size_t count_;
  Tensor kept_;
  Tensor gradient_ = Tensor::empty({0});
  std::vector<std::unique_ptr<DeviceTensor>> inputs_;
  std::unique_ptr<DeviceTensor> residual_;
  std::unique_ptr<DeviceTensor> packed_;
};

/// Around what a lane, a warp and a tile pack.
constexpr std::int64_t kPackCounts[] = {0, 1, 7, 8, 9, 255, 256, 1023, 1024, 1025, 20'003};

bool all_are_right(test::Rig& rig, const PackCase& how) {
  std::vector<std::unique_ptr<PackRow>> rows;
  for (const std::int64_t count : kPackCounts) {
    for (const int num_inputs : {1, 2, 8}) {
      for (const std::size_t offset : {0, 1, 3, 4}) {
        rows.push_back(std::make_unique<PackRow>(rig, how, count, num_inputs, offset));
      }
    }
  }
  std::vector<TensorRow> given;
  for (const auto& one : rows) given.push_back(one->row);
  const auto table = rig.kernels().make_table();
  for (int step = 0; step < 3; ++step) {
    rig.kernels().pack(nullptr, *table, given, how.packing);
    for (const auto& one : rows) {
      CAPTURE(one->row.count);
      CAPTURE(one->row.num_inputs);
      const bool is_right = one->is_packed();
      CHECK(is_right);
      if (!is_right) return false;
    }
    rig.kernels().feed_back(nullptr, *table, given, how.packing);
    for (const auto& one : rows) {
      CAPTURE(one->row.count);
      CAPTURE(one->row.num_inputs);
      const bool is_right = one->is_fed_back();
      CHECK(is_right);
      if (!is_right) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("kernels pack and feed back with the codecs' bits, of all lengths and alignments") {
  const auto rig = test::make_rig();
  for (const PackCase& how : pack_cases()) {
    CAPTURE(how.name);
    CHECK(all_are_right(*rig, how));
  }
}
