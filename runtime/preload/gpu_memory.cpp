// SPDX-License-Identifier: Apache-2.0
//
// A program may load CUDA after its first collectives, and then through a static runtime that opens
// the driver by itself, so nothing of it can be taken in advance. The dynamic loader counts the
// libraries that it has loaded: as long as the count is the same, there is no new driver.
#include "runtime/preload/gpu_memory.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <dlfcn.h>
#include <link.h>

namespace tutti::preload {

namespace {

/// The CUDA driver's cuPointerGetAttribute, and what its header says.
using PointerGetAttribute = int (*)(void* data, int attribute, std::uint64_t pointer);
constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr std::uint32_t kDevice = 2;   // CU_MEMORYTYPE_DEVICE
constexpr std::uint32_t kUnified = 4;  // CU_MEMORYTYPE_UNIFIED

std::uint64_t libraries_loaded() noexcept {
  std::uint64_t count = 0;
  const auto look = [](dl_phdr_info* info, std::size_t /*size*/, void* to) {
    *static_cast<std::uint64_t*>(to) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(look, &count);
  return count;
}

/// Null as long as the process has no driver, which is never unloaded once it is there.
PointerGetAttribute driver() noexcept {
  static constinit std::atomic<PointerGetAttribute> known{nullptr};
  static constinit std::atomic<std::uint64_t> looked_at{0};
  if (const auto function = known.load(std::memory_order_relaxed)) return function;
  const std::uint64_t count = libraries_loaded();
  if (count == looked_at.load(std::memory_order_relaxed)) return nullptr;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    const auto function =
        reinterpret_cast<PointerGetAttribute>(dlsym(library, "cuPointerGetAttribute"));
    known.store(function, std::memory_order_relaxed);
  }
  looked_at.store(count, std::memory_order_relaxed);
  return known.load(std::memory_order_relaxed);
}

/// Pages of small buffers, which are the heap's or the stack's. Large ones are given back to the
/// kernel, so that a GPU's memory may get their addresses.
constexpr std::size_t kSmall = 4096;
constexpr int kPageBits = 12;
constexpr std::size_t kPages = 16;
constinit thread_local std::array<std::uintptr_t, kPages> pages_of_host{};

}  // namespace

bool is_on_gpu(const void* address, std::size_t bytes) noexcept {
  if (address == nullptr) return false;
  const auto pointer = std::bit_cast<std::uintptr_t>(address);
  const std::uintptr_t page = pointer >> kPageBits;
  std::uintptr_t& known = pages_of_host[page % kPages];
  if (known == page && bytes <= kSmall) return false;
  const PointerGetAttribute attribute = driver();
  if (attribute == nullptr) {
    if (bytes <= kSmall) known = page;
    return false;
  }
  std::uint32_t type = 0;
  return attribute(&type, kMemoryType, pointer) == 0 && (type == kDevice || type == kUnified);
}

}  // namespace tutti::preload
