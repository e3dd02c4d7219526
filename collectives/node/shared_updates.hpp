// SPDX-License-Identifier: Apache-2.0
// Updates that the ranks of a node share: each makes those of its own share of the elements, and
// writes what it has updated to all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "collectives/node/call_context.hpp"

namespace tutti::collectives {

/// What the updates of this rank's consumer write, and how a rank updates for all.
class SharedUpdates {
 public:
  explicit SharedUpdates(const CallContext& call) : call_(call) {}

  /// Finds where this rank's updates write, if peers may write there, too. None in a call of
  /// which ranks update all for themselves. Errors: out_of_memory.
  void find();
  /// True if peers may update for this rank.
  [[nodiscard]] bool may_be_shared() const { return !offsets_.empty(); }
  /// Tells the peers where, in this rank's line of the announcement.
  void publish() const;
  /// Updates elements first .. first + count - 1 of a part from its `sources`, one of each local
  /// rank, and copies what that wrote to the places of all other ranks of the node. Any thread of
  /// this rank.
  void update(const FusedLayout::Part& part, std::span<const std::byte* const> sources,
              std::size_t first, std::size_t count, WritePolicy stores) const;

 private:
  void copy_places(std::size_t segment, std::size_t first, std::size_t count,
                   WritePolicy stores) const;

  const CallContext& call_;
  std::vector<std::uint64_t> offsets_;        ///< of what updates write; empty: they are not shared
  std::vector<std::size_t> first_offsets_{};  ///< of each segment, among them
};

}  // namespace tutti::collectives
