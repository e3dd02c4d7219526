// SPDX-License-Identifier: Apache-2.0
// Memory of one device, kept for reuse: allocating from the device may wait for all of its work.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/gpu/accelerator.hpp"

namespace tutti::gpus {

/// A pool of memory blocks. Blocks of up to 1 MiB are cut from slabs; larger ones are allocated
/// singly, and given back only when memory runs short. A block is reused at once, while work may
/// still use it: that is safe because all work of a device is in one order (see Gpus::stream). Any
/// thread.
class Pool {
 public:
  Pool(Accelerator& accelerator, int device) : accelerator_(accelerator), device_(device) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// A block, aligned to 256 bytes. Null if the device has no more memory. Zero bytes take a block
  /// of the smallest size, so that every tensor has an address.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  void give_back(std::byte* block) noexcept;

  /// The number of calls of the device's own allocator so far, which is constant once a program
  /// repeats its steps.
  [[nodiscard]] std::size_t allocations() const { return allocations_; }

 private:
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  [[nodiscard]] std::byte* cut(std::size_t bytes);
  bool release_large_blocks();

  Accelerator& accelerator_;
  int device_;
  mutable std::mutex mutex_;
  std::size_t allocations_ = 0;
  std::multimap<std::size_t, std::byte*> free_;        ///< free blocks by size
  std::unordered_map<std::byte*, std::size_t> sizes_;  ///< size of every block
  std::vector<std::byte*> slabs_;
  std::byte* slab_ = nullptr;  ///< rest of the last slab
  std::size_t slab_left_ = 0;
};

}  // namespace tutti::gpus
