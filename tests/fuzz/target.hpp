// SPDX-License-Identifier: Apache-2.0
// What a fuzz target may do with its input: return, or throw a tutti::Error that says why not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tutti/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Any other exception, and an error without words, is a finding.
template <class Body>
void expect_result_or_error(Body body) {
  try {
    body();
  } catch (const tutti::Error& error) {
    if (std::string_view(error.what()).empty()) __builtin_trap();
  }
}

}  // namespace fuzz
