// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/pool.hpp"

#include <algorithm>
#include <new>

namespace tutti::gpus {

namespace {

constexpr std::size_t kSmall = std::size_t{1} << 20;
constexpr std::size_t kSlab = std::size_t{8} << 20;

/// Rounds sizes, so that tensors of almost the same size share blocks.
std::size_t rounded(std::size_t bytes) {
  const std::size_t unit = bytes <= kSmall ? 256 : kSmall;
  return std::max<std::size_t>((bytes + unit - 1) / unit, 1) * unit;
}

}  // namespace

Pool::~Pool() {
  for (std::byte* slab : slabs_) accelerator_.release(device_, slab);
  for (const auto& [block, size] : sizes_) {
    if (size > kSmall) accelerator_.release(device_, block);
  }
}

std::byte* Pool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes);
  const auto found = free_.lower_bound(size);
  const bool fits = found != free_.end() && (found->first == size || found->first / 5 <= size / 4);
  if (fits && (found->first == size || size > kSmall)) {
    std::byte* block = found->second;
    free_.erase(found);
    return block;
  }
  std::byte* block = size <= kSmall ? cut(size) : allocate(size);
  if (block != nullptr) sizes_[block] = size;
  return block;
}

std::byte* Pool::cut(std::size_t bytes) {
  if (slab_left_ < bytes) {
    std::byte* slab = allocate(kSlab);
    if (slab == nullptr) return nullptr;
    slabs_.push_back(slab);
    slab_ = slab;
    slab_left_ = kSlab;
  }
  std::byte* block = slab_;
  slab_ += bytes;
  slab_left_ -= bytes;
  return block;
}

std::byte* Pool::allocate(std::size_t bytes) {
  ++allocations_;
  std::byte* memory = accelerator_.allocate(device_, bytes);
  if (memory == nullptr && release_large_blocks()) memory = accelerator_.allocate(device_, bytes);
  return memory;
}

bool Pool::release_large_blocks() {
  bool any = false;
  for (auto block = free_.begin(); block != free_.end();) {
    if (block->first <= kSmall) {
      ++block;
      continue;
    }
    accelerator_.release(device_, block->second);
    sizes_.erase(block->second);
    block = free_.erase(block);
    any = true;
  }
  return any;
}

void Pool::give_back(std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    free_.emplace(sizes_.at(block), block);
  } catch (const std::bad_alloc&) {  // no memory to remember the block: it is not used again
  }
}

}  // namespace tutti::gpus
