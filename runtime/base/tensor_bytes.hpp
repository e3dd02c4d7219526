// SPDX-License-Identifier: Apache-2.0
// How many bytes a dense tensor takes.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>

#include "tutti/dtype.hpp"
#include "tutti/shape.hpp"

namespace tutti {

/// Empty if no address space has room for them: above half of what a std::size_t counts, so that
/// they may be rounded up.
inline std::optional<std::size_t> bytes_of(const Shape& shape, DType dtype) noexcept {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2;
  if (shape.count() > kMost / size_of(dtype)) return std::nullopt;
  return shape.count() * size_of(dtype);
}

}  // namespace tutti
