// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/seal.hpp"

#include <cstdio>
#include <xxhash.h>

namespace tutti::checkpoint {

std::string in_hex(std::uint64_t number) {
  char digits[kUnsealed.size() + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string digest_in_hex(std::string_view bytes) {
  return in_hex(XXH3_64bits(bytes.data(), bytes.size()));
}

void seal(std::string& text, std::size_t position) {
  text.replace(position, kUnsealed.size(), digest_in_hex(text));
}

std::string_view seal_of(std::string_view text, std::size_t position) {
  if (text.size() < position + kUnsealed.size()) return {};
  const std::string_view found = text.substr(position, kUnsealed.size());
  std::string unsealed(text);
  unsealed.replace(position, kUnsealed.size(), kUnsealed);
  return digest_in_hex(unsealed) == found ? found : std::string_view{};
}

}  // namespace tutti::checkpoint
