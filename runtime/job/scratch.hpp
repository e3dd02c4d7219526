// SPDX-License-Identifier: Apache-2.0
// Scratch: a group's own memory in its rank's arena.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/wait/node_memory.hpp"
#include "runtime/job/arena.hpp"

namespace tutti {

/// The memory of a control block, of slots, and of tables that grow. Peers access all of it, so it
/// is returned to the arena when the last of them has left the group.
class Scratch {
 public:
  /// For the group that the arena was made for, whose control block exists already.
  static std::unique_ptr<Scratch> first_of(std::shared_ptr<Arena> arena);
  /// For another group, with a new control block, or a WideControlBlock. Errors: out_of_memory.
  static std::unique_ptr<Scratch> another(std::shared_ptr<Arena> arena, bool is_wide);

  /// Frees the memory, unless it is shared with peers.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] collectives::ControlBlock& control() const { return *control_; }
  [[nodiscard]] std::uint64_t offset_of_control() const { return offset_of(control_); }

  /// Returns zeroed memory for the lifetime of the group. Errors: out_of_memory.
  std::byte* allocate(std::size_t bytes);

  /// Allows peers to access the memory from now on.
  void share() noexcept { is_shared_ = true; }
  /// Called when this rank has left a group that has not failed; `ranks` ranks of the node access
  /// the block.
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
