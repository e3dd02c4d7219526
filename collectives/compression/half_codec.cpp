// SPDX-License-Identifier: Apache-2.0
// A codec that rounds elements to 16 bits, by the conversions of the reduction kernels.
#include "collectives/compression/codec.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

namespace {

constexpr std::size_t kBytes = 2;

class HalfCodec final : public Codec {
 public:
  explicit HalfCodec(DType dtype) : dtype_(dtype) {}

  [[nodiscard]] std::size_t packed_bytes(std::size_t count) const override {
    return count * kBytes;
  }
  [[nodiscard]] bool has_residual() const override { return false; }
  void pack(const float* gradient, const float* /*residual*/, std::size_t count,
            std::byte* packed) const override {
    const auto* from = reinterpret_cast<const std::byte*>(gradient);
    reduce({ReduceOp::sum, DType::float32, dtype_}, std::span(&from, 1), std::span(&packed, 1),
           count, WritePolicy::cached);
  }
  void feed_back(const float*, float*, std::size_t, const std::byte*) const override {}
  void unpack(const std::byte* packed, PackedRange range, float* values) const override {
    Workspace workspace;
    sum(std::span(&packed, 1), range, workspace, values);
  }
  /// The kernels widen elements while they add them.
  void sum(std::span<const std::byte* const> packed, PackedRange range, Workspace& workspace,
           float* sums) const override {
    auto& sources = workspace.sources;
    sources.assign(packed.begin(), packed.end());
    for (const std::byte*& source : sources) source += range.first * kBytes;
    auto* to = reinterpret_cast<std::byte*>(sums);
    reduce({ReduceOp::sum, dtype_, DType::float32}, sources, std::span(&to, 1), range.count,
           WritePolicy::cached);
  }

 private:
  DType dtype_;
};

}  // namespace

std::unique_ptr<Codec> half_codec(DType dtype) { return std::make_unique<HalfCodec>(dtype); }

}  // namespace tutti::collectives
