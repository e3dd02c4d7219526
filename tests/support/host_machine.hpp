// SPDX-License-Identifier: Apache-2.0
// The Machine of runtime/gpu/kernels/staging.hpp that a test is: the "device" is poisoned host
// memory, and all threads of a kernel run one after the other. Work is put off until finish(), so
// that memory which is written again too early is seen.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>

#include "runtime/gpu/kernels/lanes.hpp"

namespace test {

/// What a HostMachine has been asked for, and when it runs it.
struct HostWork {
  std::deque<std::function<void()>> waiting;
  std::size_t num_allocations = 0;
  std::size_t num_copies = 0;
  std::size_t num_copied_bytes = 0;
  std::size_t num_launches = 0;
  int events_left = -1;  ///< that can be made; -1: any number

  void finish() {
    for (; !waiting.empty(); waiting.pop_front()) waiting.front()();
  }
};

class HostMachine {
 public:
  using Event = std::shared_ptr<bool>;
  using Shape = tutti::gpus::kernels::UsualShape;
  using Stream = void*;

  explicit HostMachine(HostWork* work) : work_(work) {}

  std::byte* allocate(std::size_t bytes) {
    ++work_->num_allocations;
    auto* memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256}));
    std::memset(memory, 0xA5, bytes);
    return memory;
  }
  void release(std::byte* memory) { ::operator delete (memory, std::align_val_t{256}); }
  std::byte* allocate_pinned(std::size_t bytes) { return allocate(bytes); }
  void release_pinned(std::byte* memory) { release(memory); }

  void copy(Stream /*stream*/, std::byte* to, const std::byte* from, std::size_t bytes) {
    ++work_->num_copies;
    work_->num_copied_bytes += bytes;
    work_->waiting.emplace_back([=] { std::memcpy(to, from, bytes); });
  }

  Event create_event() {
    if (work_->events_left == 0) throw std::bad_alloc();
    --work_->events_left;
    return std::make_shared<bool>(true);
  }
  void destroy_event(const Event& /*event*/) {}
  void record(const Event& event, Stream /*stream*/) {
    *event = false;
    work_->waiting.emplace_back([event] { *event = true; });
  }
  bool done(const Event& event) { return *event; }

  template <class Body>
  void run(Stream /*stream*/, std::uint32_t num_tiles, const Body& body) {
    ++work_->num_launches;
    work_->waiting.emplace_back([=] {
      for (std::uint32_t tile = 0; tile < num_tiles; ++tile) {
        for (std::uint32_t lane = 0; lane < tutti::gpus::kernels::kLanes; ++lane) body(tile, lane);
      }
    });
  }

  template <std::uint32_t kThreads, class Body>
  void run_sums(Stream /*stream*/, std::uint32_t num_groups, const Body& body) {
    ++work_->num_launches;
    work_->waiting.emplace_back([=] {
      for (std::uint32_t group = 0; group < num_groups; ++group) {
        double values[kThreads];
        for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
          values[thread] = body(group, thread);
        }
        body.store_sum(group, tree_sum<kThreads>(values));
      }
    });
  }

 private:
  /// As cuda_machine.cuh adds: in each warp in pairs, then the warps.
  template <std::uint32_t kThreads>
  static double tree_sum(double* values) {
    constexpr std::uint32_t kLanes = tutti::gpus::kernels::kLanes;
    for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::uint32_t at = 0; at < kThreads; ++at) {
        if (at % kLanes < half) values[at] += values[at + half];
      }
    }
    for (std::uint32_t half = kThreads / kLanes / 2; half > 0; half /= 2) {
      for (std::uint32_t warp = 0; warp < half; ++warp) {
        values[warp * kLanes] += values[(warp + half) * kLanes];
      }
    }
    return values[0];
  }

  HostWork* work_;
};

}  // namespace test
