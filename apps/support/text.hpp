// SPDX-License-Identifier: Apache-2.0
// Numbers and columns of the programs' reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

namespace apps {

/// Formats like printf, into a string of at most 255 characters.
template <class... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), pattern, arguments...);
  return text.data();
}

/// A cell of a table: the text at its right end, behind at least one space.
inline std::string column(const std::string& text, std::size_t width) {
  return text.size() + 1 >= width ? " " + text : std::string(width - text.size(), ' ') + text;
}

/// A time with at least three significant digits, hundredths at most: "0.17", "12.35", "123.4",
/// "64211".
std::string time_text(double microseconds);

/// A rate with three digits, and at most four behind the point: "0.0003", "0.0123", "4.20", "42.1",
/// "123".
std::string rate_text(double gigabytes_per_second);

/// A whole number: "8", "1,024".
std::string count_text(double count);

/// A size in powers of 1024, with at most one decimal: "8 B", "1 KiB", "1.5 MiB".
std::string bytes_text(double bytes);

}  // namespace apps
