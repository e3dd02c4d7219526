// SPDX-License-Identifier: Apache-2.0
// bytes_of: the size of a dense tensor in bytes.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>

#include "tutti/dtype.hpp"
#include "tutti/shape.hpp"

namespace tutti {

/// Returns nothing if the size does not fit into half of a std::size_t. Half, so that it can be
/// rounded up.
inline std::optional<std::size_t> bytes_of(const Shape& shape, DType dtype) noexcept {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2;
  if (shape.count() > kMost / size_of(dtype)) return std::nullopt;
  return shape.count() * size_of(dtype);
}

}  // namespace tutti
