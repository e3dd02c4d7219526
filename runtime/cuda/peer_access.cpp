// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/peer_access.hpp"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>

#include "runtime/cuda/check.hpp"

namespace tutti::cuda {

namespace {

/// The contents of a PeerName. CUDA does not open a process's own handles, so a name tells which
/// process it comes from.
template <class Handle>
struct Named {
  std::uint64_t process;
  void* own;  ///< the memory or event in that process
  Handle handle;
};

template <class Handle>
gpus::PeerName to_name(const Named<Handle>& named) {
  gpus::PeerName name;
  static_assert(sizeof named <= sizeof name.bytes);
  std::memcpy(name.bytes.data(), &named, sizeof named);
  return name;
}

template <class Handle>
Named<Handle> from_name(const gpus::PeerName& name) {
  Named<Handle> named;
  std::memcpy(&named, name.bytes.data(), sizeof named);
  return named;
}

class IpcAccess final : public gpus::PeerAccess {
 public:
  gpus::PeerName name_of_memory(int device, std::byte* memory) override {
    const OnDevice here(device);
    Named<cudaIpcMemHandle_t> named{process_, memory, {}};
    check(cudaIpcGetMemHandle(&named.handle, memory), "cudaIpcGetMemHandle", device);
    return to_name(named);
  }

  std::byte* open_memory(int device, const gpus::PeerName& name) override {
    const auto named = from_name<cudaIpcMemHandle_t>(name);
    if (named.process == process_) return static_cast<std::byte*>(named.own);
    const OnDevice here(device);
    void* memory = nullptr;
    const BesideCaptures beside;
    check(cudaIpcOpenMemHandle(&memory, named.handle, cudaIpcMemLazyEnablePeerAccess),
          "cudaIpcOpenMemHandle", device);
    const std::lock_guard lock(mutex_);
    opened_.insert(memory);
    return static_cast<std::byte*>(memory);
  }

  void close_memory(std::byte* memory) noexcept override {
    if (!forget(memory)) return;
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaIpcCloseMemHandle(memory));
  }

  void* create_event(int device) override {
    const OnDevice here(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess),
          "cudaEventCreateWithFlags", device);
    return event;
  }

  gpus::PeerName name_of_event(int device, void* event) override {
    const OnDevice here(device);
    Named<cudaIpcEventHandle_t> named{process_, event, {}};
    check(cudaIpcGetEventHandle(&named.handle, static_cast<cudaEvent_t>(event)),
          "cudaIpcGetEventHandle", device);
    return to_name(named);
  }

  void* open_event(int device, const gpus::PeerName& name) override {
    const auto named = from_name<cudaIpcEventHandle_t>(name);
    if (named.process == process_) return named.own;
    const OnDevice here(device);
    cudaEvent_t event = nullptr;
    check(cudaIpcOpenEventHandle(&event, named.handle), "cudaIpcOpenEventHandle", device);
    const std::lock_guard lock(mutex_);
    opened_.insert(event);
    return event;
  }

  void close_event(void* event) noexcept override {
    if (!forget(event)) return;
    const OnUsedDevice here;
    ignore(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  }

 private:
  /// Forgets memory or an event of another process. False if it is this process's own.
  bool forget(void* opened) noexcept {
    const std::lock_guard lock(mutex_);
    return opened_.erase(opened) == 1;
  }

  static std::uint64_t random_number() {
    std::random_device source;
    return std::uint64_t{source()} << 32 | source();
  }

  const std::uint64_t process_ = random_number();  // numbers of processes repeat in containers
  std::mutex mutex_;
  std::set<void*> opened_;
};

}  // namespace

std::unique_ptr<gpus::PeerAccess> make_peer_access() { return std::make_unique<IpcAccess>(); }

}  // namespace tutti::cuda
