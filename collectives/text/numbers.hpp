// SPDX-License-Identifier: Apache-2.0
// Numbers as text, independent of the locale. printf and streams use a decimal comma, and streams
// group digits, if the program has set such a locale.
#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace tutti {

namespace numbers {

template <class... Format>
std::string text_of(double value, Format... format) {
  std::array<char, 400> text{};  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format...).ptr;
  return {text.data(), end};
}

}  // namespace numbers

/// Formats a number like printf's %.2f, for 2 decimals, in the locale "C": "0.25".
inline std::string fixed(double value, int decimals) {
  return numbers::text_of(value, std::chars_format::fixed, decimals);
}

/// Formats a number like printf's %.9g, for 9 digits: "0.25", "1.5e+10".
inline std::string significant(double value, int digits) {
  return numbers::text_of(value, std::chars_format::general, digits);
}

/// Returns the shortest text that is read back as the same number.
inline std::string exact(double value) { return numbers::text_of(value); }

/// Parses a number; returns nothing if the text contains anything else.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace tutti
