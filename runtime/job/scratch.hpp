// SPDX-License-Identifier: Apache-2.0
// What a group has of its rank's arena for itself.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/wait/node_memory.hpp"
#include "runtime/job/arena.hpp"

namespace tutti {

/// A control block, the slots that data passes through, and tables that grow. Peers look at all of
/// it, so that it goes back to the arena when the last of them has left the group.
class Scratch {
 public:
  /// For the group that the arena was made for: its control block is there already.
  static std::unique_ptr<Scratch> first_of(std::shared_ptr<Arena> arena);
  /// With a control block of its own. Errors: out_of_memory.
  static std::unique_ptr<Scratch> another(std::shared_ptr<Arena> arena);

  /// Frees what no peer knows of: nothing once the block is shared.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] collectives::ControlBlock& control() const { return *control_; }
  [[nodiscard]] std::uint64_t offset_of_control() const { return offset_of(control_); }

  /// Zeroed memory for as long as the group lives. Errors: out_of_memory.
  std::byte* allocate(std::size_t bytes);

  /// Peers may look at it from now on.
  void share() noexcept { is_shared_ = true; }
  /// This rank has left a group that has not failed; so many ranks of the node look at the block.
  void retire(std::uint32_t ranks);

 private:
  Scratch(std::shared_ptr<Arena> arena, collectives::ControlBlock* control);
  [[nodiscard]] std::uint64_t offset_of(const void* memory) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - arena_->data());
  }

  std::shared_ptr<Arena> arena_;
  collectives::ControlBlock* control_;
  std::vector<std::byte*> allocated_;
  bool is_shared_ = false;
};

}  // namespace tutti
