// SPDX-License-Identifier: Apache-2.0
// A check that a call throws an Error, with this code and these words in its text.
#pragma once

#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <vector>

#include "tutti/error.hpp"

namespace test {

inline constexpr auto kInvalid = tutti::ErrorCode::invalid_argument;

inline void check_error(const tutti::Error& error, tutti::ErrorCode code,
                        const std::vector<std::string>& words) {
  CHECK(error.code() == code);
  const std::string text = error.what();
  for (const std::string& word : words) {
    INFO("expected \"", word, "\" in: ", text);
    CHECK(text.find(word) != std::string::npos);
  }
}

inline void expect_error(const std::function<void()>& call, tutti::ErrorCode code,
                         const std::vector<std::string>& words) {
  try {
    call();
  } catch (const tutti::Error& error) {
    return check_error(error, code, words);
  }
  FAIL_CHECK("expected an error, got none");
}

}  // namespace test
