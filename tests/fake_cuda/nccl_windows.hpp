// SPDX-License-Identifier: Apache-2.0
// Memory that the fake NCCL has given and registered, and what it counts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <vector>

/// Memory that a rank has registered.
struct ncclWindow_vidmem {
  std::byte* memory;
  std::size_t bytes;
};

namespace fake_nccl {

[[noreturn]] inline void give_up(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  std::abort();
}

/// The memory that ncclMemAlloc has given, and how often each block is registered.
class Blocks {
 public:
  static Blocks& self() {
    static Blocks blocks;
    return blocks;
  }

  void add(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[memory] = {bytes, 0};
  }
  void remove(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) give_up("memory is freed that ncclMemAlloc has not given");
    if (found->second.windows != 0) give_up("memory is freed that is registered");
    blocks_.erase(found);
  }
  void enter(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end() || found->second.bytes < bytes) {
      give_up("memory is registered that ncclMemAlloc has not given");
    }
    ++found->second.windows;
  }
  void leave(void* memory) {
    const std::lock_guard lock(mutex_);
    --blocks_.at(memory).windows;
  }
  void count_collective(bool is_in_window) {
    ++collectives_;
    if (is_in_window) ++in_windows_;
  }
  void count_group() { ++groups_; }

  FakeNcclCounts counts() {
    const std::lock_guard lock(mutex_);
    FakeNcclCounts counts{0, static_cast<int>(blocks_.size()), collectives_, in_windows_, groups_};
    for (const auto& [memory, block] : blocks_) counts.windows += block.windows;
    return counts;
  }

 private:
  struct Block {
    std::size_t bytes;
    int windows;
  };
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::atomic<int> collectives_{0};
  std::atomic<int> in_windows_{0};
  std::atomic<int> groups_{0};
};

/// The windows of one communicator.
class Windows {
 public:
  ncclWindow_t add(std::byte* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    windows_.push_back(std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{memory, bytes}));
    return windows_.back().get();
  }
  void remove(ncclWindow_t window) {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](const auto& one) { return one.get() == window; };
    if (std::ranges::none_of(windows_, is_it)) give_up("a window is removed that is not there");
    Blocks::self().leave(window->memory);
    std::erase_if(windows_, is_it);
  }
  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return windows_.empty();
  }

  /// Where in a window this memory is; -1: in none.
  [[nodiscard]] std::ptrdiff_t place_of(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const begin = static_cast<const std::byte*>(memory);
    for (const auto& window : windows_) {
      const std::byte* const end = window->memory + window->bytes;
      if (begin + bytes <= window->memory || begin >= end) continue;
      if (begin < window->memory || begin + bytes > end) give_up("a sum is partly in a window");
      return begin - window->memory;
    }
    return -1;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows_;
};

}  // namespace fake_nccl
