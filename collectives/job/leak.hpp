// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Never destroys an object: after a failure, messages may still be under way to its buffers, a
/// peer that was stopped may still read or write its memory, and work of a GPU that uses it may
/// never end. Any thread.
inline void leak_until_exit(std::shared_ptr<const void> object) noexcept {
  // The list itself is never destroyed either. A checker of leaks finds the objects through it.
  static auto* const mutex = new std::mutex;
  static auto* const leaked = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(*mutex);
  try {
    leaked->push_back(std::move(object));
  } catch (const std::bad_alloc&) {  // kept where no list knows of it
    union Kept {
      explicit Kept(std::shared_ptr<const void>&& kept) : object(std::move(kept)) {}
      ~Kept() {}  // not of the object
      std::shared_ptr<const void> object;
    };
    const Kept kept(std::move(object));
  }
}

}  // namespace tutti::collectives
