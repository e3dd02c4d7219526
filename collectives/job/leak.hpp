// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Never destroys an object: after a failure, messages may still be under way to its buffers, a
/// peer that was stopped may still read or write its memory, and a GPU's work that uses it may
/// never end. Callable from any thread.
inline void leak_until_exit(std::shared_ptr<const void> object) noexcept {
  using Object = std::shared_ptr<const void>;
  using Objects = std::vector<Object>;
  // The list itself is never destroyed, so that leak checkers find the objects through it.
  static std::mutex mutex;
  alignas(Objects) static std::byte place[sizeof(Objects)];
  static auto* const leaked = new (place) Objects;
  const std::lock_guard lock(mutex);
  try {
    leaked->push_back(std::move(object));
  } catch (const std::bad_alloc&) {  // keeps one reference forever, without the list
    alignas(Object) std::byte kept[sizeof(Object)];
    new (kept) Object(std::move(object));
  }
}

}  // namespace tutti::collectives
