// SPDX-License-Identifier: Apache-2.0
#include "collectives/keep.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// One list per process, never destroyed: that is its purpose.
void keep_until_exit(std::shared_ptr<const void> object) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(*mutex);
  kept->push_back(std::move(object));
}

}  // namespace tutti::collectives
