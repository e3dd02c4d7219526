// SPDX-License-Identifier: Apache-2.0
// The place of a check in the tests' sources.
#pragma once

#include <cstdint>
#include <string>

namespace test {

/// std::source_location, which clang-tidy 14 does not know.
class Place {
 public:
  static constexpr Place current(const char* file = __builtin_FILE(),
                                 std::uint_least32_t line = __builtin_LINE()) noexcept {
    return {file, line};
  }
  [[nodiscard]] const char* file_name() const noexcept { return file_; }
  [[nodiscard]] std::uint_least32_t line() const noexcept { return line_; }

 private:
  constexpr Place(const char* file, std::uint_least32_t line) noexcept : file_(file), line_(line) {}

  const char* file_;
  std::uint_least32_t line_;
};

inline std::string to_string(const Place& place) {
  return place.file_name() + (":" + std::to_string(place.line()));
}

}  // namespace test
