// SPDX-License-Identifier: Apache-2.0
#include "support/bytes_text.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace apps {

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
