// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process, behind an interface that tests can replace.
//
// In a job this is the CUDA runtime (runtime/cuda); in tests it is host memory with streams that
// run late and in a random order (tests/support/fake_accelerator.hpp), so that a missing wait is
// seen without a GPU. No file here includes a header of CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tutti/dtype.hpp"

#include "runtime/gpu/kernels.hpp"
#include "runtime/gpu/node_library.hpp"
#include "runtime/gpu/peer_access.hpp"

namespace tutti::gpus {

/// A point in a stream. Null if there is nothing to wait for.
using Event = void*;

struct DeviceInfo {
  std::string name;    ///< "NVIDIA H200"
  std::string bus_id;  ///< "0000:18:00.0": the address that tells two GPUs of a host apart
  std::size_t memory_bytes = 0;
  bool is_slice = false;  ///< it is a slice of a divided GPU (MIG): slices have one bus id
};

/// The GPUs of a process, and work for them. Work is put into streams and runs later: in order
/// within a stream; between streams only as wait() says. Memory addresses are unique over the host
/// and all devices. Errors, of every call: communication, with the call of CUDA, the device and the
/// cause.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Number of devices; at least 1.
  [[nodiscard]] virtual int count() const = 0;
  [[nodiscard]] virtual DeviceInfo info(int device) const = 0;
  /// The versions for --version and messages: "CUDA 13.0, driver 13.0".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Memory of a device, aligned to 256 bytes; null if there is not enough. May wait for the
  /// device: nothing that is called in every step allocates (see Pool).
  [[nodiscard]] virtual std::byte* allocate(int device, std::size_t bytes) = 0;
  virtual void release(int device, std::byte* memory) noexcept = 0;
  /// Pinned memory of the host, from and to which all devices copy at full speed, without waiting.
  /// `device`: one that is in use. Null if there is not enough.
  [[nodiscard]] virtual std::byte* allocate_pinned(int device, std::size_t bytes) = 0;
  virtual void release_pinned(std::byte* memory) noexcept = 0;

  /// The reason why a program's stream cannot be used; empty if it can.
  [[nodiscard]] virtual std::string refusal_of(int device, Stream stream) const = 0;
  [[nodiscard]] virtual Stream create_stream(int device) = 0;
  virtual void destroy_stream(int device, Stream stream) noexcept = 0;

  [[nodiscard]] virtual Event create_event(int device) = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  /// Makes the event stand for all work that has been put into the stream so far.
  virtual void record(Event event, int device, Stream stream) = 0;
  /// Makes all work that is put into the stream from now on run after the event.
  virtual void wait(int device, Stream stream, Event event) = 0;
  /// True once all work before the event has run. Never waits. Errors: also those of that work.
  [[nodiscard]] virtual bool done(Event event) = 0;

  /// Copies between any two of device memory and pinned memory, in the stream's turn. From other
  /// memory of the host: the call may wait, and then has read that memory.
  virtual void copy(int device, Stream stream, std::byte* to, const std::byte* from,
                    std::size_t bytes) = 0;

  /// Makes memory of the host pinned that somebody else allocated; false if that cannot be done.
  [[nodiscard]] virtual bool pin(int device, std::byte* memory, std::size_t bytes) = 0;
  virtual void unpin(std::byte* memory) noexcept = 0;

  /// Name the work of this thread between the two calls, for a profiler that watches. Ranges nest.
  /// Without a profiler they cost next to nothing.
  virtual void begin_range(const char* name) noexcept = 0;
  virtual void end_range() noexcept = 0;

  /// Collectives among GPUs of several processes.
  [[nodiscard]] virtual NodeLibrary& node_library() = 0;

  /// Memory and events of other processes; null if processes cannot share them.
  [[nodiscard]] virtual PeerAccess* peer_access() { return nullptr; }

  /// The kernels of a device. They live as long as the accelerator.
  [[nodiscard]] virtual Kernels& kernels(int device) = 0;
};

}  // namespace tutti::gpus
