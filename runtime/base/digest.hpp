// SPDX-License-Identifier: Apache-2.0
// Digest: a running 64-bit digest (XXH3) that is equal on ranks that add equal data in equal order.
#pragma once

#include <cstdint>
#include <string_view>
#include <xxhash.h>

#include "tutti/dtype.hpp"
#include "tutti/key.hpp"
#include "tutti/shape.hpp"

namespace tutti {

class Digest {
 public:
  Digest& add(std::string_view bytes) {
    value_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), value_ + bytes.size());
    return *this;
  }
  Digest& add(std::uint64_t number) {
    value_ = XXH3_64bits_withSeed(&number, sizeof number, value_);
    return *this;
  }
  Digest& add(double number) { return add(std::bit_cast<std::uint64_t>(number)); }
  Digest& add(const Shape& shape, DType dtype) {
    const auto dimensions = shape.dimensions();
    return add({reinterpret_cast<const char*>(dimensions.data()), dimensions.size_bytes()})
        .add(static_cast<std::uint64_t>(dtype));
  }
  Digest& add(const Key& key) {
    return key.is_string() ? add(std::string_view(key.text()))
                           : add(static_cast<std::uint64_t>(key.number()));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// Folds a digest to the number of bits that an announcement has room for.
inline std::uint32_t folded(std::uint64_t digest) {
  return static_cast<std::uint32_t>(digest ^ digest >> 32);
}

}  // namespace tutti
