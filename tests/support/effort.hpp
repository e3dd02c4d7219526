// SPDX-License-Identifier: Apache-2.0
// The number of cases and rounds that tests try, by the tool that runs them.
#pragma once

namespace test {

/// ThreadSanitizer checks accesses, not values, and takes 20 times as long: under it, tests that
/// compare bits in many combinations try only some of them. So they do under an emulator.
#if defined(__SANITIZE_THREAD__) || defined(TEST_EMULATED)
inline constexpr bool kFewCases = true;
#else
inline constexpr bool kFewCases = false;
#endif

/// Both sanitizers find errors in a few rounds as well as in many.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(TEST_EMULATED)
inline constexpr bool kFewRounds = true;
#else
inline constexpr bool kFewRounds = false;
#endif

}  // namespace test
