// SPDX-License-Identifier: Apache-2.0
#include "support/text.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace apps {

std::string time_text(double microseconds) {
  if (microseconds < 100.0) return format("%.2f", microseconds);
  return format(microseconds < 10000.0 ? "%.1f" : "%.0f", microseconds);
}

std::string rate_text(double gigabytes_per_second) {
  if (gigabytes_per_second < 0.1) return format("%.4f", gigabytes_per_second);
  return format(gigabytes_per_second < 99.95 ? "%#.3g" : "%.0f", gigabytes_per_second);
}

std::string count_text(double count) {
  std::string text = format("%.0f", count);
  for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  const bool whole = std::abs(bytes - std::round(bytes)) < 0.05;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text.data();
}

}  // namespace apps
