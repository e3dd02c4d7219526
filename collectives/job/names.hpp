// SPDX-License-Identifier: Apache-2.0
// name_in: names of enumerators, from a list in the order of their values.
#pragma once

#include <cstddef>

namespace tutti::collectives {

/// Returns the name of an enumerator, of which `kLast` is the last one; "unknown" for other values.
/// Safe in a signal handler.
template <auto kLast, std::size_t kCount>
constexpr const char* name_in(const char* const (&names)[kCount], decltype(kLast) value) noexcept {
  static_assert(kCount == static_cast<std::size_t>(kLast) + 1, "a name for each enumerator");
  const auto index = static_cast<std::size_t>(value);
  return index < kCount ? names[index] : "unknown";
}

}  // namespace tutti::collectives
