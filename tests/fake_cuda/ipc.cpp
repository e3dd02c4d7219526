// SPDX-License-Identifier: Apache-2.0
// Memory and events that several processes use. A handle names an open file of its process, which
// others open through /proc: the memory of its devices, or a page in which an event counts. As in
// CUDA, a process does not open its own handles.
#include <atomic>
#include <chrono>
#include <cstring>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/fake_cuda/machine.hpp"

using fake_cuda::Machine;

namespace {

constexpr std::size_t kPage = 4096;
constexpr auto kPause = std::chrono::microseconds(20);

std::atomic<bool> is_blind_to_peers{false};

/// What is in a handle.
struct HandleContents {
  pid_t process;
  int file;
  int device;
  std::size_t offset;
  std::size_t bytes;
};

template <class Handle>
void write_to(Handle& handle, const HandleContents& place) {
  static_assert(sizeof place <= sizeof handle.reserved);
  std::memcpy(handle.reserved, &place, sizeof place);
}

template <class Handle>
HandleContents read_from(const Handle& handle) {
  HandleContents place;
  std::memcpy(&place, handle.reserved, sizeof place);
  return place;
}

/// Null if it cannot be had.
std::byte* map(const HandleContents& place, std::size_t begin, std::size_t bytes) {
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(begin));
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

std::byte* map_zeros(std::size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

}  // namespace

namespace fake_cuda {

void set_blind_to_peers(bool is_blind) { is_blind_to_peers = is_blind; }

bool share(Event& event) {
  event.file = memfd_create("fake_event", MFD_CLOEXEC);
  if (event.file < 0 || ftruncate(event.file, kPage) != 0) return false;
  void* const mapped = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, event.file, 0);
  if (mapped == MAP_FAILED) return false;
  event.shared = new (mapped) SharedPoint{};
  return true;
}

void record_shared(Event& event, const std::shared_ptr<Stream>& stream) {
  const std::uint64_t number = ++event.shared->recorded;
  stream->put([point = event.shared, number] { point->run = number; });
}

void await_shared(const Event& event, const std::shared_ptr<Stream>& stream) {
  const std::uint64_t after = event.shared->recorded;
  stream->put([point = event.shared, after] {
    while (point->run < after) std::this_thread::sleep_for(kPause);
  });
}

}  // namespace fake_cuda

extern "C" {

/// CUDA takes a block's first byte alone.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return Machine::self().call("cudaIpcGetMemHandle", [&] {
    const auto extent = Machine::self().memory.extent_of(memory);
    if (!extent) return cudaErrorInvalidValue;
    write_to(*handle, {getpid(), extent->file, Machine::current(), extent->offset, extent->bytes});
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  return Machine::self().call("cudaIpcOpenMemHandle", [&] {
    const HandleContents place = read_from(handle);
    if (flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    if (place.process == getpid()) return cudaErrorInvalidResourceHandle;
    const std::size_t skipped = place.offset % kPage;
    std::byte* const mapped = is_blind_to_peers
                                  ? map_zeros(skipped + place.bytes)
                                  : map(place, place.offset - skipped, skipped + place.bytes);
    if (mapped == nullptr) return cudaErrorInvalidResourceHandle;
    const std::lock_guard lock(Machine::self().mutex);
    Machine::self().imported[mapped + skipped] = place.bytes;
    *memory = mapped + skipped;
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return Machine::self().call("cudaIpcCloseMemHandle", [&] {
    Machine::self().await_all();
    const std::lock_guard lock(Machine::self().mutex);
    auto& imported = Machine::self().imported;
    const auto found = imported.find(static_cast<std::byte*>(memory));
    if (found == imported.end()) return cudaErrorInvalidValue;
    const std::size_t skipped = reinterpret_cast<std::uintptr_t>(memory) % kPage;
    munmap(found->first - skipped, skipped + found->second);
    imported.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return Machine::self().call("cudaIpcGetEventHandle", [&] {
    const auto found = Machine::self().find(event);
    if (found == nullptr || found->file < 0) return cudaErrorInvalidResourceHandle;
    write_to(*handle, {getpid(), found->file, found->device, 0, kPage});
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return Machine::self().call("cudaIpcOpenEventHandle", [&] {
    const HandleContents place = read_from(handle);
    if (place.process == getpid()) return cudaErrorInvalidResourceHandle;
    std::byte* const mapped = map(place, 0, kPage);
    if (mapped == nullptr) return cudaErrorInvalidResourceHandle;
    *event = Machine::self().add_event();
    Machine::self().find(*event)->shared = reinterpret_cast<fake_cuda::SharedPoint*>(mapped);
    return cudaSuccess;
  });
}

}  // extern "C"
