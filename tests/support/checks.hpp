// SPDX-License-Identifier: Apache-2.0
// Checks that doctest does not have: they know their place, work on threads that play ranks, and
// catch errors.
#pragma once

#include <cstdint>
#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <vector>

#include "tutti/error.hpp"

namespace test {

/// A place in the source, in place of std::source_location, which clang-tidy 14 does not know.
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

/// Throws an Error with the place, the expected value and the value found.
[[noreturn]] inline void fail_here(const std::string& what, Place where = Place::current()) {
  throw tutti::Error(tutti::ErrorCode::divergence, to_string(where) + ": " + what);
}

/// Throws unless both are equal. A thread that plays a rank uses it, because a failed REQUIRE would
/// end the whole program there.
template <class Got, class Expected>
void require_equal(const Got& got, const Expected& expected, const std::string& what,
                   Place where = Place::current()) {
  if (got == expected) return;
  const auto text = [](const auto& value) { return std::string(doctest::toString(value).c_str()); };
  fail_here(what + ": expected " + text(expected) + ", got " + text(got), where);
}

inline constexpr auto kInvalid = tutti::ErrorCode::invalid_argument;

inline void check_error(const tutti::Error& error, tutti::ErrorCode code,
                        const std::vector<std::string>& words) {
  CHECK(error.code() == code);
  const std::string text = error.what();
  for (const std::string& word : words) {
    INFO("expected \"", word, "\" in: ", text);
    CHECK(text.find(word) != std::string::npos);
  }
}

inline void expect_error(const std::function<void()>& call, tutti::ErrorCode code,
                         const std::vector<std::string>& words) {
  try {
    call();
  } catch (const tutti::Error& error) {
    return check_error(error, code, words);
  }
  FAIL_CHECK("expected an error, got none");
}

}  // namespace test
