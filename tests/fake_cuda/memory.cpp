// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda/machine.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace fake_cuda {

namespace {

constexpr std::size_t kBytes = std::size_t{4} << 30;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGap = 256;  // between blocks, so that a step too far is seen
constexpr std::size_t kPage = 4096;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void poison([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(begin, bytes);
#endif
}

void unpoison([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

}  // namespace

DeviceMemory::DeviceMemory() {
  file_ = memfd_create("fake_gpu", MFD_CLOEXEC);
  void* const mapped = file_ < 0 || ftruncate(file_, static_cast<off_t>(kBytes)) != 0
                           ? MAP_FAILED
                           : mmap(nullptr, kBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (mapped == MAP_FAILED) give_up("no memory for fake GPUs");
  begin_ = static_cast<std::byte*>(mapped);
  poison(begin_, kBytes);
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  for (const auto& [used, size] : blocks_) {
    if (used >= offset + bytes + kGap) break;
    offset = rounded_up(used + size + kGap, kAlignment);
  }
  if (offset + bytes + kGap > kBytes) return nullptr;
  top_ = std::max(top_, rounded_up(offset + bytes, kPage));
  blocks_[offset] = bytes;
  unpoison(begin_ + offset, bytes);
  const std::size_t first_page = offset / kPage * kPage;
  const std::size_t pages = rounded_up(offset + bytes, kPage) - first_page;
  mprotect(begin_ + first_page, pages, PROT_READ | PROT_WRITE);
  std::memset(begin_ + offset, 0xA5, bytes);
  if (open_ == 0) mprotect(begin_ + first_page, pages, PROT_NONE);
  return begin_ + offset;
}

bool DeviceMemory::release(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::size_t>(block - begin_));
  if (!is_inside(block) || found == blocks_.end()) return false;
  poison(block, found->second);
  blocks_.erase(found);
  shrink();
  return true;
}

/// What nobody uses has no pages, whose protection takes time to change.
void DeviceMemory::shrink() {
  const auto last = blocks_.rbegin();
  const std::size_t top = blocks_.empty() ? 0 : rounded_up(last->first + last->second, kPage);
  if (top == top_) return;
  mprotect(begin_ + top, top_ - top, PROT_NONE);
  madvise(begin_ + top, top_ - top, MADV_REMOVE);
  top_ = top;
}

bool DeviceMemory::is_inside(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= begin_ && at < begin_ + kBytes;
}

bool DeviceMemory::holds(const void* address, std::size_t bytes) const {
  if (!is_inside(address)) return false;
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin_);
  const auto after = blocks_.upper_bound(offset);
  if (after == blocks_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return offset + bytes <= begin + size;
}

std::optional<DeviceMemory::Extent> DeviceMemory::extent_of(const void* block) const {
  if (!is_inside(block)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found =
      blocks_.find(static_cast<std::size_t>(static_cast<const std::byte*>(block) - begin_));
  if (found == blocks_.end()) return std::nullopt;
  return Extent{file_, found->first, found->second};
}

std::size_t DeviceMemory::num_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

void DeviceMemory::protect(int protection) const {
  if (top_ > 0) mprotect(begin_, top_, protection);
}

DeviceMemory::Open::Open(DeviceMemory& memory) : memory_(memory) {
  const std::lock_guard lock(memory_.mutex_);
  if (memory_.open_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
}

DeviceMemory::Open::~Open() {
  const std::lock_guard lock(memory_.mutex_);
  if (--memory_.open_ == 0) memory_.protect(PROT_NONE);
}

}  // namespace fake_cuda
