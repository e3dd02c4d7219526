// SPDX-License-Identifier: Apache-2.0
// What tests under mpirun share: verdicts that all ranks agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/place.hpp"

namespace test {

int rank();
int size();
inline bool is_last() { return rank() == size() - 1; }
/// The last rank as messages begin to name it.
inline std::string last() { return "rank " + std::to_string(size() - 1); }

/// True on every rank if `mine` is true on every rank: a check that could differ between ranks is
/// REQUIRE(test::agree(..)), so that ranks fail together and none waits for one that left the test.
/// Collective, on a communicator of its own. Ranks that call it from different lines are out of
/// step, which ends the job with the name of both places.
bool agree(bool mine, Place where = Place::current());

/// The largest of the ranks' values.
double largest(double mine);

/// True if all ranks hold the same bytes.
bool same_on_all(std::span<const std::byte> bytes, Place where = Place::current());

inline std::span<const std::byte> bytes_of(const tutti::ConstTensorView& tensor) {
  return {tensor.bytes(), tensor.size_bytes()};
}

/// True if both hold the same bits, -0 and NaN included.
bool same_bits(const tutti::ConstTensorView& left, const tutti::ConstTensorView& right);

/// Settings for tests: a deadline that is long for a busy machine and short for a stuck test.
tutti::Settings settings();

/// What `body` threw: the error, or nothing and a line of output that says what came instead.
std::optional<tutti::Error> error_of(const std::function<void()>& body);

/// Whether the error has this code and all of these words, and leaves the store usable.
bool is_refusal(const std::optional<tutti::Error>& error, tutti::ErrorCode code,
                const std::vector<std::string>& words);

/// Runs `body` on every rank: true if it threw on every rank an error with this code, after which
/// the store can still be used, and whose text holds all of these words.
bool throws_on_all(const std::function<void()>& body, tutti::ErrorCode code,
                   const std::vector<std::string>& words, Place where = Place::current());

/// The same for errors of a local call: the body runs on rank `only` alone.
bool throws_on(int only, const std::function<void()>& body, tutti::ErrorCode code,
               const std::vector<std::string>& words, Place where = Place::current());

}  // namespace test
