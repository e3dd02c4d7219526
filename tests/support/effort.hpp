// SPDX-License-Identifier: Apache-2.0
// How much tests try, by what runs them.
#pragma once

namespace test {

/// ThreadSanitizer looks at accesses, not at values, and takes 20 times as long: tests that compare
/// bits in many combinations make do with some of them there. So they do under an emulator.
#if defined(__SANITIZE_THREAD__) || defined(TEST_EMULATED)
inline constexpr bool kFewCases = true;
#else
inline constexpr bool kFewCases = false;
#endif

/// Both sanitizers see in a few rounds what they see in many.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(TEST_EMULATED)
inline constexpr bool kFewRounds = true;
#else
inline constexpr bool kFewRounds = false;
#endif

}  // namespace test
