// SPDX-License-Identifier: Apache-2.0
// The dimensions of a dense, row-major tensor, and the device that holds it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tutti/export.h"

namespace tutti {

/// Up to eight dimensions, kept without allocation. An empty shape is a scalar: one element.
class TUTTI_API Shape {
 public:
  static constexpr std::size_t kMaxDimensions = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dimensions)  // NOLINT: implicit on purpose
      : Shape(std::span(dimensions.begin(), dimensions.size())) {}

  /// Errors  invalid_argument: a negative dimension, more than kMaxDimensions, or a number of
  ///         elements that does not fit into 63 bits.
  explicit Shape(std::span<const std::int64_t> dimensions);

  [[nodiscard]] std::span<const std::int64_t> dimensions() const noexcept {
    return {dimensions_.data(), rank_};
  }
  /// Number of elements.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  friend bool operator==(const Shape& left, const Shape& right) noexcept {
    return left.rank_ == right.rank_ && left.dimensions_ == right.dimensions_;
  }

 private:
  std::array<std::int64_t, kMaxDimensions> dimensions_{};
  std::size_t rank_ = 0;
  std::size_t count_ = 1;
};

/// The shape as it is printed: "(2, 3)"; "()" for a scalar.
TUTTI_API std::string to_string(const Shape& shape);

enum class DeviceKind : std::uint8_t { cpu, gpu };

/// The device that holds a tensor. Several cpu(i) are one memory: the index only tells values
/// apart, as in a list of values pushed from several devices.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

constexpr Device cpu(int index = 0) noexcept { return {DeviceKind::cpu, index}; }
constexpr Device gpu(int index = 0) noexcept { return {DeviceKind::gpu, index}; }

/// The device as it is printed: "cpu(0)".
TUTTI_API std::string to_string(Device device);

}  // namespace tutti
