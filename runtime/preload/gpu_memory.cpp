// SPDX-License-Identifier: Apache-2.0
//
// A program may load CUDA after its first collectives, and then through a static runtime that opens
// the driver by itself, so nothing of it can be taken in advance. The dynamic loader counts the
// libraries that it has loaded: as long as the count is the same, there is no new driver.
#include "runtime/preload/gpu_memory.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace tutti::preload {

namespace {

/// The CUDA driver's cuPointerGetAttributes, which knows no host pointers and does not call them an
/// error, and what its header says.
using PointerGetAttributes = int (*)(unsigned count, int* attributes, void** data,
                                     std::uint64_t pointer);
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

/// Null as long as the process has no driver. The handle is kept, so that it is not unloaded.
PointerGetAttributes driver() noexcept {
  static constinit std::atomic<PointerGetAttributes> known{nullptr};
  static constinit std::atomic<std::uint64_t> looked_at{0};
  if (const auto function = known.load(std::memory_order_acquire)) return function;
  const std::uint64_t count = libraries_loaded();
  // Another thread that has looked at as many has stored what it found before.
  if (count == looked_at.load(std::memory_order_acquire)) {
    return known.load(std::memory_order_acquire);
  }
  if (void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
    known.store(reinterpret_cast<PointerGetAttributes>(dlsym(library, "cuPointerGetAttributes")),
                std::memory_order_release);
  } else {
    dlerror();  // the text is not the program's
  }
  looked_at.store(count, std::memory_order_release);
  return known.load(std::memory_order_acquire);
}

/// The end of the first thread's stack, which the kernel has made, for that thread; 0 for others.
std::uintptr_t end_of_first_stack() noexcept {
  static constexpr std::uintptr_t kUnknown = 1;
  constinit static thread_local std::uintptr_t end = kUnknown;
  if (end != kUnknown) return end;
  end = 0;
  pthread_attr_t attributes;
  if (gettid() != getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0) return end;
  void* begin = nullptr;
  std::size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &begin, &bytes) == 0) {
    end = std::bit_cast<std::uintptr_t>(begin) + bytes;
  }
  pthread_attr_destroy(&attributes);
  return end;
}

/// True for memory that has its addresses for the life of the process: a mapping may get those of
/// another that is gone, and a GPU's memory with them.
bool is_of_process(std::uintptr_t address) noexcept {
  static const std::uintptr_t image = getauxval(AT_PHDR);  // near its begin; the heap follows it
  if (address >= image && address < std::bit_cast<std::uintptr_t>(sbrk(0))) return true;
  const auto here = std::bit_cast<std::uintptr_t>(__builtin_frame_address(0));
  return address >= here && address < end_of_first_stack();
}

}  // namespace

bool is_on_gpu(const void* address) noexcept {
  const auto pointer = std::bit_cast<std::uintptr_t>(address);
  if (pointer == 0 || is_of_process(pointer)) return false;
  const PointerGetAttributes attributes = driver();
  if (attributes == nullptr) return false;
  int asked = kMemoryType;
  std::uint32_t type = 0;
  void* answer = &type;
  return attributes(1, &asked, &answer, pointer) == 0 && (type == kDevice || type == kUnified);
}

}  // namespace tutti::preload
