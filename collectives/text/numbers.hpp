// SPDX-License-Identifier: Apache-2.0
// Numbers as text, the same under every locale. printf and streams write and read a decimal comma,
// and streams group digits, where the program has chosen a locale that does so.
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
  std::array<char, 400> text{};  // the greatest double has 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format...).ptr;
  return {text.data(), end};
}

}  // namespace numbers

/// "0.25" for 2 decimals: as printf's %.2f writes it in the locale "C".
inline std::string fixed(double value, int decimals) {
  return numbers::text_of(value, std::chars_format::fixed, decimals);
}

/// "0.25", "1.5e+10" for 9 digits: as printf's %.9g.
inline std::string significant(double value, int digits) {
  return numbers::text_of(value, std::chars_format::general, digits);
}

/// The shortest text that is read back as the same number.
inline std::string exact(double value) { return numbers::text_of(value); }

/// The number that the text is; nothing if anything else is in it.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace tutti
