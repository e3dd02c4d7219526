// SPDX-License-Identifier: Apache-2.0
// Parses sizes as people write them.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "collectives/text/letters.hpp"

namespace tutti {

std::size_t parse_bytes(const std::string& text) {
  std::size_t digits = 0;
  std::size_t number = 0;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  while (digits < text.size() && is_digit(text[digits])) {
    const auto digit = static_cast<std::size_t>(text[digits] - '0');
    if (number > (kMost - digit) / 10) break;
    number = number * 10 + digit;
    ++digits;
  }
  std::string suffix = text.substr(digits);
  for (char& letter : suffix) letter = upper(letter);
  int shift = -1;
  if (suffix.empty() || suffix == "B") shift = 0;
  if (suffix == "K" || suffix == "KB" || suffix == "KIB") shift = 10;
  if (suffix == "M" || suffix == "MB" || suffix == "MIB") shift = 20;
  if (suffix == "G" || suffix == "GB" || suffix == "GIB") shift = 30;
  if (digits == 0 || shift < 0 || number > (kMost >> shift)) {
    throw Error(ErrorCode::invalid_argument,
                "'" + text +
                    "' is not a size: expected a number of bytes, with a suffix K, M or G "
                    "(powers of 1024), such as 64M or 64MiB");
  }
  return number << shift;
}

}  // namespace tutti
