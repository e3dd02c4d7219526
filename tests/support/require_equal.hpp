// SPDX-License-Identifier: Apache-2.0
// Checks in the threads that play ranks: a failed REQUIRE would end the whole program there.
#pragma once

#include <doctest/doctest.h>
#include <string>

#include "tutti/error.hpp"

#include "tests/support/place.hpp"

namespace test {

/// Throws an Error that says where, what was expected and what was got.
[[noreturn]] inline void fail_here(const std::string& what, Place where = Place::current()) {
  throw tutti::Error(tutti::ErrorCode::divergence, to_string(where) + ": " + what);
}

/// Throws unless both are equal.
template <class Got, class Expected>
void require_equal(const Got& got, const Expected& expected, const std::string& what,
                   Place where = Place::current()) {
  if (got == expected) return;
  const auto text = [](const auto& value) { return std::string(doctest::toString(value).c_str()); };
  fail_here(what + ": expected " + text(expected) + ", got " + text(got), where);
}

}  // namespace test
