// SPDX-License-Identifier: Apache-2.0
// CountExchange: the counts of an alltoallv, which ranks exchange before data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/tensor.hpp"

#include "collectives/engine/engine.hpp"

namespace tutti {

/// The counts of every rank and, if they are few, its elements for other ranks: a call with few
/// elements is complete when the counts have been exchanged.
///
///   every rank gets   [given 0, 1, ... | wanted 0, 1, ... | room for elements] of each rank
///
/// The room for elements has to be known before the counts are. It is the room that the previous
/// call would have needed. All ranks know the counts of that call, so they choose the same.
///
/// There is one object per group, shared by all copies of its communicator: with one per copy,
/// ranks that use different copies could have different rooms.
class CountExchange {
 public:
  using Counts = std::span<const std::size_t>;

  /// Exchanges the counts of all ranks, which stay valid until the next meet(). Order: collective.
  /// `given` adds up to the elements of `input`; both lists have one count per rank. Errors: those
  /// of Engine::run.
  void meet(collectives::Engine& engine, const ConstTensorView& input, Counts given, Counts wanted,
            collectives::FunctionRef<std::string()> what);

  /// Return how many elements `from` has for `to`, and how many `to` expects.
  [[nodiscard]] std::size_t given(std::size_t from, std::size_t to) const {
    return all_[stride_ * from + to];
  }
  [[nodiscard]] std::size_t wanted(std::size_t from, std::size_t to) const {
    return all_[stride_ * to + ranks_ + from];
  }
  /// True, on all ranks alike, if the elements of every rank arrived with its counts.
  [[nodiscard]] bool have_data() const { return most_bytes_ <= room_; }
  /// Writes the elements of all ranks for this one to `output`, in the order of ranks. `input`: as
  /// passed to meet(). Requires have_data().
  void copy_data(std::size_t rank, const std::byte* input, std::byte* output) const;

 private:
  void make_room(std::size_t ranks);
  void take_data(std::size_t rank, const std::byte* input);
  [[nodiscard]] std::size_t bytes(std::size_t from, std::size_t first, std::size_t end) const;

  std::size_t ranks_ = 0;
  std::size_t width_ = 0;       ///< bytes of an element
  std::size_t room_ = 0;        ///< bytes for the elements of each rank
  std::size_t stride_ = 0;      ///< numbers that each rank sends
  std::size_t most_bytes_ = 0;  ///< the most bytes that any rank had for others in the last call
  std::vector<std::uint64_t> own_;
  std::vector<std::uint64_t> all_;
};

}  // namespace tutti
