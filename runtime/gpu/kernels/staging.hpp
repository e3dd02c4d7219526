// SPDX-License-Identifier: Apache-2.0
// Small tables on their way to the device. A Machine (cuda_machine.cuh, or a test's) has:
//
//   Shape                                        of its kernels (lanes.hpp)
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
#include <deque>
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

  /// Returns at least so many bytes. Their contents are lost if the memory grows.
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

/// Pinned memory that copies to the device read from: a ring. Bytes that a copy reads are written
/// again only after it has run, which nobody waits for: where there is no room, another ring takes
/// over, twice as large, so the memory of all rings is less than twice that of the last one.
/// Another ring also takes over if a copy was begun and its event could not be recorded.
///
///   memory  [ . . . | copy 3 | copy 4 | copy 5 | . . . ]     oldest: copy 3     end: behind copy 5
template <class Machine>
class Staging {
 public:
  explicit Staging(Machine& machine) : machine_(machine) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    for (const Event& event : events_) machine_.destroy_event(event);
    for (std::byte* memory : rings_) machine_.release_pinned(memory);
  }

  void send(Stream stream, std::byte* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    retire();
    const std::size_t begin = make_room(bytes);
    const Event event = free_event();
    std::memcpy(rings_.back() + begin, from, bytes);
    is_lost_ = true;  // until the event is recorded
    machine_.copy(stream, to, rings_.back() + begin, bytes);
    machine_.record(event, stream);
    is_lost_ = false;
    copies_.push_back({begin, event});
    free_events_.pop_back();
    end_ = begin + (bytes + kAlign - 1) / kAlign * kAlign;
  }

  /// Bytes of all rings together.
  [[nodiscard]] std::size_t pinned_bytes() const { return pinned_bytes_; }

 private:
  using Event = typename Machine::Event;
  static constexpr std::size_t kAlign = 16;
  static constexpr std::size_t kLeast = std::size_t{16} << 10;
  struct Copy {
    std::size_t begin;
    Event event;
  };

  void retire() {
    while (!copies_.empty() && machine_.done(copies_.front().event)) {
      free_events_.push_back(copies_.front().event);
      copies_.pop_front();
    }
  }

  /// Returns the offset of so many bytes that no copy reads.
  std::size_t make_room(std::size_t bytes) {
    if (!rings_.empty() && !is_lost_) {
      if (copies_.empty()) end_ = 0;
      const bool is_wrapped = !copies_.empty() && end_ <= copies_.front().begin;
      const std::size_t limit = is_wrapped ? copies_.front().begin : bytes_;
      if (bytes <= limit - std::min(limit, end_)) return end_;
      if (!is_wrapped && !copies_.empty() && bytes <= copies_.front().begin) return 0;
    }
    const std::size_t size = std::max({2 * bytes_, 2 * bytes, kLeast});
    rings_.reserve(rings_.size() + 1);
    rings_.push_back(machine_.allocate_pinned(size));
    pinned_bytes_ += size;
    bytes_ = size;
    copies_.clear();  // nothing waits for their events, so these are not used again
    is_lost_ = false;
    return 0;
  }

  Event free_event() {
    if (free_events_.empty()) {
      events_.reserve(events_.size() + 1);
      events_.push_back(machine_.create_event());
      free_events_.push_back(events_.back());
    }
    return free_events_.back();
  }

  Machine& machine_;
  std::vector<std::byte*> rings_;  ///< the last one is in use
  std::size_t pinned_bytes_ = 0;
  std::size_t bytes_ = 0;    ///< size of the last ring
  std::size_t end_ = 0;      ///< offset behind the newest copy
  std::deque<Copy> copies_;  ///< copies from the last ring, in the order of the stream
  std::vector<Event> events_;
  std::vector<Event> free_events_;
  bool is_lost_ = false;  ///< a copy was begun without an event
};

/// An array of the device that is sent again only if it has changed.
template <class Machine>
class SentArray {
 public:
  explicit SentArray(Machine& machine) : memory_(machine) {}

  void reserve(std::size_t bytes) {
    if (bytes > reserved_) sent_.clear();  // the contents are lost
    memory_.get(bytes);
    reserved_ = std::max(reserved_, bytes);
  }

  std::byte* send(Staging<Machine>& staging, Stream stream, const void* data, std::size_t bytes) {
    const bool same =
        bytes == sent_.size() && (bytes == 0 || std::memcmp(sent_.data(), data, bytes) == 0);
    if (same) return memory_.memory();
    std::byte* to = memory_.get(bytes);
    sent_.clear();  // in case sending throws
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
