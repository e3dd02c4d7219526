// SPDX-License-Identifier: Apache-2.0
// A store's choice of gradient compression.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/compression.hpp"

#include "collectives/compression/codec.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

class GradientCompression {
 public:
  GradientCompression() = default;  ///< no compression
  /// Errors  invalid_argument: an option out of its range.
  explicit GradientCompression(const Compression& options);

  /// The codec, if this leg is compressed; else null.
  [[nodiscard]] const collectives::Codec* codec_of(compression::Leg leg) const {
    return leg == leg_ ? codec_.get() : nullptr;
  }
  /// Errors  invalid_argument: values that the codec cannot pack.
  void require_packable(const Entry& entry) const;

  [[nodiscard]] bool is_on() const { return codec_ != nullptr; }
  [[nodiscard]] const Compression& options() const { return options_; }
  /// A digest that is equal on ranks that compress alike.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// The compression for messages: empty for none, else ", compressed by
  /// 2bit,threshold=0.5,leg=all".
  [[nodiscard]] std::string describe() const;

 private:
  Compression options_;
  compression::Leg leg_ = compression::Leg::all;
  std::unique_ptr<collectives::Codec> codec_;
};

/// This rank's residual of a key; zeros at the first call.
float* residual_of(Entry& entry);

}  // namespace tutti
