// SPDX-License-Identifier: Apache-2.0
// Memory and events of one process that others of its host use from their own GPUs, or from the
// same one: cudaIpc (runtime/cuda/peer_access.cpp).
#pragma once

#include <array>
#include <cstddef>

namespace tutti::gpus {

/// A name by which other processes of the host open memory or an event, as long as its owner has
/// it.
struct PeerName {
  std::array<std::byte, 96> bytes{};
};

/// Opens memory and events of other processes. Errors, of every call: communication, with the call
/// of CUDA, the device and the cause; also where one GPU cannot reach the memory of another.
class PeerAccess {
 public:
  virtual ~PeerAccess() = default;

  /// The name of memory as Accelerator::allocate gave it.
  [[nodiscard]] virtual PeerName name_of_memory(int device, std::byte* memory) = 0;
  /// Opens the memory for work of `device`. Fails if its process has ended.
  [[nodiscard]] virtual std::byte* open_memory(int device, const PeerName& name) = 0;
  virtual void close_memory(std::byte* memory) noexcept = 0;

  /// An event that other processes may open. Its owner alone records it; it stays until the process
  /// ends.
  [[nodiscard]] virtual void* create_event(int device) = 0;
  [[nodiscard]] virtual PeerName name_of_event(int device, void* event) = 0;
  /// Opens an event for Accelerator::wait, which waits for the owner's last recording before that
  /// call.
  [[nodiscard]] virtual void* open_event(int device, const PeerName& name) = 0;
  virtual void close_event(void* event) noexcept = 0;
};

}  // namespace tutti::gpus
