// SPDX-License-Identifier: Apache-2.0
#include "tutti/key.hpp"

#include <xxhash.h>

#include "runtime/base/throw.hpp"

namespace tutti {

void Key::throw_too_large(std::uint64_t number) {
  throw_invalid_argument("key " + std::to_string(number) +
                         ": expected an integer of 64 bits with a sign, or a string");
}

std::string to_string(const Key& key) {
  return key.is_string() ? key.text() : std::to_string(key.number());
}

}  // namespace tutti

// The hash of a key is equal on all ranks: signatures of collective calls carry it.
std::size_t std::hash<tutti::Key>::operator()(const tutti::Key& key) const noexcept {
  if (key.is_string()) return XXH3_64bits(key.text().data(), key.text().size());
  const std::int64_t number = key.number();
  return XXH3_64bits(&number, sizeof number);
}
