// SPDX-License-Identifier: Apache-2.0
// Small tables on their way to the device. A Machine (cuda_machine.hpp, or a test's) is:
//
//   std::byte* allocate(bytes), release(memory)                  of the device
//   std::byte* allocate_pinned(bytes), release_pinned(memory)    of the host
//   void copy(stream, to, from, bytes)                           in the stream's turn
//   Event create_event(), destroy_event(event), record(event, stream); bool done(event)
//   void run(stream, num_tiles, body)            body(tile, lane) for kLanes lanes of each tile
//   void run_sums<kThreads>(stream, num_groups, body)   body.store_sum(group, the sum of what
//                                                body(group, thread) gives)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/gpu/kernels.hpp"

namespace tutti::gpus::kernels {

/// Memory of the device that grows and is never shrunk.
template <class Machine>
class DeviceMemory {
 public:
  explicit DeviceMemory(Machine& machine) : machine_(machine) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { machine_.release(memory_); }

  /// At least so many bytes. What was there is lost if it grows.
  std::byte* get(std::size_t bytes) {
    if (bytes > bytes_) {
      machine_.release(memory_);
      memory_ = nullptr;
      bytes_ = 0;
      const std::size_t roomy = std::max(bytes + bytes / 4, std::size_t{4096});
      memory_ = machine_.allocate(roomy);
      bytes_ = roomy;
    }
    return memory_;
  }
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  Machine& machine_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Pinned memory that copies to the device read from. A piece is written again only after the copy
/// that reads it has run, which nobody waits for: until then there is another piece. One whose copy
/// was begun and could not be followed by its event is never written again.
template <class Machine>
class Staging {
 public:
  explicit Staging(Machine& machine) : machine_(machine) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    for (const Piece& piece : pieces_) {
      machine_.destroy_event(piece.copied);
      machine_.release_pinned(piece.memory);
    }
  }

  void send(Stream stream, std::byte* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    Piece& piece = free_piece(bytes);
    std::memcpy(piece.memory, from, bytes);
    piece.is_followed = false;
    machine_.copy(stream, to, piece.memory, bytes);
    machine_.record(piece.copied, stream);
    piece.is_followed = true;
  }

 private:
  using Event = typename Machine::Event;
  struct Piece {
    std::byte* memory;
    std::size_t bytes;
    Event copied;
    bool is_followed = true;  ///< `copied` tells when the last copy has run
  };

  Piece& free_piece(std::size_t bytes) {
    for (Piece& piece : pieces_) {
      if (piece.bytes < bytes || !piece.is_followed) continue;
      if (machine_.done(piece.copied)) return piece;
    }
    const std::size_t size = std::max(bytes + bytes / 4, std::size_t{4096});
    pieces_.reserve(pieces_.size() + 1);
    pieces_.push_back({nullptr, 0, machine_.create_event()});
    pieces_.back().memory = machine_.allocate_pinned(size);  // without it the piece is too small
    pieces_.back().bytes = size;
    return pieces_.back();
  }

  Machine& machine_;
  std::vector<Piece> pieces_;
};

/// An array of the device that is sent again only if it has changed.
template <class Machine>
class SentArray {
 public:
  explicit SentArray(Machine& machine) : memory_(machine) {}

  void reserve(std::size_t bytes) {
    if (bytes > reserved_) sent_.clear();  // what was there is lost
    memory_.get(bytes);
    reserved_ = std::max(reserved_, bytes);
  }

  std::byte* send(Staging<Machine>& staging, Stream stream, const void* data, std::size_t bytes) {
    const bool same =
        bytes == sent_.size() && (bytes == 0 || std::memcmp(sent_.data(), data, bytes) == 0);
    if (same) return memory_.memory();
    std::byte* to = memory_.get(bytes);
    sent_.clear();  // should sending throw
    staging.send(stream, to, data, bytes);
    const auto* first = static_cast<const std::byte*>(data);
    sent_.assign(first, first + bytes);
    return to;
  }

 private:
  DeviceMemory<Machine> memory_;
  std::size_t reserved_ = 0;
  std::vector<std::byte> sent_;
};

}  // namespace tutti::gpus::kernels
