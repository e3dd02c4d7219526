// SPDX-License-Identifier: Apache-2.0
#include "tutti/shape.hpp"

#include <algorithm>
#include <limits>

#include "tutti/error.hpp"

namespace tutti {
namespace {

std::string parenthesised(std::span<const std::int64_t> dimensions) {
  std::string text = "(";
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dimensions[i]);
  }
  return text + ")";
}

[[noreturn]] void throw_bad_shape(std::span<const std::int64_t> dimensions,
                                  const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "shape " + parenthesised(dimensions) + ": " + why);
}

// An array with an empty dimension is empty, however large its other dimensions are.
std::size_t count_elements(std::span<const std::int64_t> dimensions) {
  if (std::ranges::find(dimensions, 0) != dimensions.end()) return 0;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t count = 1;
  for (const std::int64_t dimension : dimensions) {
    if (count > kMost / dimension) {
      throw_bad_shape(dimensions, "expected fewer than 2^63 elements, got more");
    }
    count *= dimension;
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

Shape::Shape(std::span<const std::int64_t> dimensions) : rank_(dimensions.size()) {
  if (rank_ > kMaxDimensions) {
    throw_bad_shape(dimensions, "expected at most " + std::to_string(kMaxDimensions) +
                                    " dimensions, got " + std::to_string(rank_));
  }
  for (std::size_t i = 0; i < rank_; ++i) {
    if (dimensions[i] < 0) {
      throw_bad_shape(dimensions, "expected no negative dimension, got " +
                                      std::to_string(dimensions[i]) + " at index " +
                                      std::to_string(i));
    }
  }
  std::ranges::copy(dimensions, dimensions_.begin());
  count_ = count_elements(dimensions);
}

std::string to_string(const Shape& shape) { return parenthesised(shape.dimensions()); }

std::string to_string(Device device) {
  const char* kind = device.kind == DeviceKind::cpu ? "cpu(" : "gpu(";
  return kind + std::to_string(device.index) + ")";
}

}  // namespace tutti
