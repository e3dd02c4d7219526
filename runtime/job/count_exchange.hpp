// SPDX-License-Identifier: Apache-2.0
// What the ranks of an alltoallv tell each other before data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/tensor.hpp"

#include "collectives/engine/engine.hpp"

namespace tutti {

/// Every rank's counts, and beside them its elements for others where these are few: a call of few
/// elements is over when its counts have met.
///
///   every rank gets   [given 0, 1, ... | wanted 0, 1, ... | room for elements] of each rank
///
/// How much room there is has to be known before the counts are. It is what the call before this
/// one would have needed. All ranks have seen that call's counts, so they decide alike.
///
/// One per group, whichever copies of its communicator the ranks use: with a room per copy, the
/// ranks could have different ones.
class CountExchange {
 public:
  using Counts = std::span<const std::size_t>;

  /// Tells all ranks each other's counts, which stay here until the next meet().
  /// Order   collective. `given` adds up to the elements of `input`; one count per rank in both.
  /// Errors  those of Engine::run.
  void meet(collectives::Engine& engine, const ConstTensorView& input, Counts given, Counts wanted,
            collectives::FunctionRef<std::string()> what);

  /// How many elements `from` has for `to`, and how many `to` expects.
  [[nodiscard]] std::size_t given(std::size_t from, std::size_t to) const {
    return all_[stride_ * from + to];
  }
  [[nodiscard]] std::size_t wanted(std::size_t from, std::size_t to) const {
    return all_[stride_ * to + ranks_ + from];
  }
  /// True, on all ranks alike, if the elements of every rank came with its counts.
  [[nodiscard]] bool have_data() const { return most_bytes_ <= room_; }
  /// Writes what the ranks have for this one, in their order. `input`: as at meet(). After
  /// have_data().
  void copy_data(std::size_t rank, const std::byte* input, std::byte* output) const;

 private:
  void make_room(std::size_t ranks);
  void take_data(std::size_t rank, const std::byte* input);
  [[nodiscard]] std::size_t bytes(std::size_t from, std::size_t first, std::size_t end) const;

  std::size_t ranks_ = 0;
  std::size_t width_ = 0;       ///< bytes of an element
  std::size_t room_ = 0;        ///< bytes for the elements of each rank
  std::size_t stride_ = 0;      ///< numbers that a rank sends
  std::size_t most_bytes_ = 0;  ///< that a rank had for others in the last call; the most of all
  std::vector<std::uint64_t> own_;
  std::vector<std::uint64_t> all_;
};

}  // namespace tutti
