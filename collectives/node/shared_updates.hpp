// SPDX-License-Identifier: Apache-2.0
// SharedUpdates: each rank of a node updates its share of the elements, and writes the updated
// arrays to all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "collectives/node/call_context.hpp"

namespace tutti::collectives {

/// The arrays that the updates of this rank's consumer write, and the update of a share for all
/// ranks.
class SharedUpdates {
 public:
  explicit SharedUpdates(const CallContext& call) : call_(call) {}

  /// Finds the arrays that this rank's updates write, if peers may write them, too. Finds none in
  /// calls in which each rank updates for itself. Errors: out_of_memory.
  void find();
  /// True if peers may update for this rank.
  [[nodiscard]] bool may_be_shared() const { return !offsets_.empty(); }
  /// Writes the offsets of these arrays into this rank's announcement.
  void publish() const;
  /// Updates elements first .. first + count - 1 of a part from its `sources`, one for each local
  /// rank, and copies the updated arrays to all other ranks of the node. Callable from any thread
  /// of this rank.
  void update(const FusedLayout::Part& part, std::span<const std::byte* const> sources,
              std::size_t first, std::size_t count, WritePolicy stores) const;

 private:
  void copy_places(std::size_t segment, std::size_t first, std::size_t count,
                   WritePolicy stores) const;

  const CallContext& call_;
  std::vector<std::uint64_t> offsets_;        ///< of updated arrays; empty: not shared
  std::vector<std::size_t> first_offsets_{};  ///< index of each segment's first offset
};

}  // namespace tutti::collectives
