// SPDX-License-Identifier: Apache-2.0
// Helpers of tests under mpirun: verdicts that all ranks agree on, and layouts of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/checks.hpp"

namespace test {

int rank();
int size();
inline bool is_last() { return rank() == size() - 1; }
/// The last rank, as the begin of a message names it.
inline std::string last() { return "rank " + std::to_string(size() - 1); }

/// True on every rank if `mine` is true on every rank: a check that could differ between ranks is
/// REQUIRE(test::agree(..)), so that ranks fail together and none waits for one that left the test.
/// Collective, on a communicator of its own. Ranks that call it from different lines are out of
/// step, which ends the job with the name of both places.
bool agree(bool mine, Place where = Place::current());

/// The largest of the ranks' values, on all ranks.
double largest(double mine);

/// True if all ranks hold the same bytes.
bool same_on_all(std::span<const std::byte> bytes, Place where = Place::current());

inline std::span<const std::byte> bytes_of(const tutti::ConstTensorView& tensor) {
  return {tensor.bytes(), tensor.size_bytes()};
}

/// True if both tensors hold the same bits, -0 and NaN included.
bool same_bits(const tutti::ConstTensorView& left, const tutti::ConstTensorView& right);

/// Settings for tests: a deadline that is long for a busy machine and short for a stuck test.
tutti::Settings settings();

/// The error that `body` threw; or nothing, after printing what it did instead.
std::optional<tutti::Error> error_of(const std::function<void()>& body);

/// True if the error has this code and all of these words, and leaves the store usable.
bool is_refusal(const std::optional<tutti::Error>& error, tutti::ErrorCode code,
                const std::vector<std::string>& words);

/// Runs `body` on every rank: true if it threw on every rank an error with this code, after which
/// the store can still be used, and whose text holds all of these words.
bool throws_on_all(const std::function<void()>& body, tutti::ErrorCode code,
                   const std::vector<std::string>& words, Place where = Place::current());

/// Checks the error of a local call: the body runs on rank `only` alone. True on all ranks if it is
/// right.
bool throws_on(int only, const std::function<void()>& body, tutti::ErrorCode code,
               const std::vector<std::string>& words, Place where = Place::current());

// --- layouts of the job's ranks over virtual nodes -----------------------------------------------

using Layout = std::vector<int>;  // ranks per node, one entry per node

inline std::string to_string(const Layout& layout) {
  std::string text;
  for (const int ranks : layout) text += (text.empty() ? "" : ",") + std::to_string(ranks);
  return text;
}

inline Layout one_node() { return {size()}; }

/// Layouts of nodes of equally many ranks, a power of two: 8 ranks give 1x8, 2x4, 4x2 and 8x1, 6
/// give 1x6, 3x2, 6x1.
inline std::vector<Layout> equal_blocks() {
  std::vector<Layout> layouts = {one_node()};
  for (int block = 1; block < size(); block *= 2) {
    if (size() % block == 0) layouts.emplace_back(static_cast<std::size_t>(size() / block), block);
  }
  return layouts;
}

/// Layouts with nodes of different sizes, or of sizes that are no power of two.
inline std::vector<Layout> uneven() {
  std::vector<Layout> layouts;
  for (const Layout& start :
       {Layout{1}, Layout{3}, Layout{5}, Layout{1, 1}, Layout{2, 1}, Layout{3, 3}, Layout{1, 5}}) {
    const int rest = size() - std::accumulate(start.begin(), start.end(), 0);
    if (rest < 1) continue;
    layouts.push_back(start);
    layouts.back().push_back(rest);
  }
  return layouts;
}

inline std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = equal_blocks();
  for (const Layout& layout : uneven()) layouts.push_back(layout);
  return layouts;
}

inline tutti::Settings settings_for(const Layout& layout, bool reproducible = false) {
  tutti::Settings with = settings();
  with.ranks_per_node = layout;
  with.reproducible = reproducible;
  return with;
}

}  // namespace test
