// SPDX-License-Identifier: Apache-2.0
// PlainText: composes text in a fixed buffer without library functions that are forbidden in a
// signal handler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::collectives {

/// Text that does not fit is cut off.
class PlainText {
 public:
  explicit PlainText(std::span<char> buffer) noexcept : buffer_(buffer) {}

  PlainText& add(const char* text, std::size_t length) noexcept {
    const std::size_t taken = std::min(length, buffer_.size() - size_);
    std::memcpy(buffer_.data() + size_, text, taken);
    size_ += taken;
    return *this;
  }
  PlainText& add(const char* text) noexcept { return add(text, std::strlen(text)); }
  PlainText& add(std::uint64_t number) noexcept {
    char digits[20];
    char* first = digits + sizeof digits;
    do {
      *--first = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return add(first, static_cast<std::size_t>(digits + sizeof digits - first));
  }
  PlainText& add(std::int64_t number) noexcept {
    if (number >= 0) return add(static_cast<std::uint64_t>(number));
    return add("-").add(~static_cast<std::uint64_t>(number) + 1);
  }
  /// Adds a duration, such as "12.345 s".
  PlainText& add_seconds(double nanoseconds) noexcept {
    const auto milliseconds = static_cast<std::uint64_t>(nanoseconds / 1e6);
    const char decimals[3] = {static_cast<char>('0' + milliseconds / 100 % 10),
                              static_cast<char>('0' + milliseconds / 10 % 10),
                              static_cast<char>('0' + milliseconds % 10)};
    return add(milliseconds / 1000).add(".").add(decimals, 3).add(" s");
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::span<char> buffer_;
  std::size_t size_ = 0;
};

}  // namespace tutti::collectives
