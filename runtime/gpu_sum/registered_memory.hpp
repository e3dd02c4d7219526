// SPDX-License-Identifier: Apache-2.0
// Memory for sums that a NodeLibrary has registered, so that each GPU reads and writes the others'.
//
//   take()   local, before the ranks agree on a sum     memory of the library's own
//   use()    collective, once they have agreed          registered, if it is new
//
// A sum lies in it on all ranks, in the same place, or on none: a library chooses by that how it
// sums, and ranks that chose differently would wait for each other.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/gpu/node_library.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

class RegisteredMemory {
 public:
  RegisteredMemory(Group& group, std::shared_ptr<NodeCollectives> node)
      : group_(group), node_(std::move(node)) {}

  /// For the next sum, of which all ranks want as many bytes. It stays as long as none wants more.
  /// Local. Errors: out_of_memory.
  [[nodiscard]] std::byte* take(std::size_t bytes);

  /// Before each sum that the ranks have agreed on. Collective if take() has given new memory, and
  /// then calls `settle`, which returns when all work on the memory before it has run.
  /// Errors: communication, timeout, and those of `settle`. The caller fails the group.
  void use(const std::function<void()>& settle);

  [[nodiscard]] bool is_in_use() const { return current_.memory != nullptr; }

 private:
  struct Piece {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  void require_one_answer(bool is_registered);

  Group& group_;
  std::shared_ptr<NodeCollectives> node_;
  Piece current_;  ///< registered, of equal size on all ranks
  Piece next_;     ///< the ranks have not agreed on a sum that lies in it
};

}  // namespace tutti::gpus
