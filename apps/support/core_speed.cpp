// SPDX-License-Identifier: Apache-2.0
#include "support/core_speed.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <tutti/communicator.hpp>

namespace apps {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double measure_call() {
  constexpr int kCalls = 10'000;
  tutti::Communicator self = tutti::Communicator::self();
  tutti::Tensor value = tutti::Tensor::zeros({2});
  self.allreduce(value);
  const auto begin = Clock::now();
  for (int call = 0; call < kCalls; ++call) self.allreduce(value);
  return since(begin) / kCalls;
}

/// Two threads that answer each other. They give the core away now and then, because there may be
/// one alone.
double measure_signal() {
  constexpr int kTurns = 20'000;
  constexpr int kPolls = 1000;
  std::atomic<int> turn{0};
  const auto take_turns = [&](int odd) {
    for (int mine = odd; mine < kTurns; mine += 2) {
      for (int poll = 1; turn.load(std::memory_order_acquire) != mine; ++poll) {
        if (poll % kPolls == 0) std::this_thread::yield();
      }
      turn.store(mine + 1, std::memory_order_release);
    }
  };
  const auto begin = Clock::now();
  std::thread other(take_turns, 1);
  take_turns(0);
  other.join();
  return since(begin) / kTurns;
}

/// Bytes per second that some threads read and write together, in sums as a call makes them.
double measure_sums(unsigned threads) {
  constexpr std::size_t kCount = std::size_t{256} << 10;
  constexpr int kRepeats = 100;
  constexpr double kStreams = 3;  // two are read, one is written
  const auto add = [] {
    std::vector<float> left(kCount, 1);
    std::vector<float> right(kCount, 1);
    std::vector<float> sum(kCount);
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (std::size_t i = 0; i < kCount; ++i) sum[i] = left[i] + right[i];
      left[static_cast<std::size_t>(repeat)] = sum[static_cast<std::size_t>(repeat)];
    }
  };
  add();
  const auto begin = Clock::now();
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(add);
  add();
  for (std::thread& other : others) other.join();
  return threads * kStreams * sizeof(float) * kCount * kRepeats / since(begin);
}

}  // namespace

CoreSpeed measure_cores() {
  CoreSpeed cores;
  cores.call = measure_call();
  cores.signal = measure_signal();
  cores.core_rate = measure_sums(1);
  cores.node_rate = std::max(cores.core_rate, measure_sums(std::thread::hardware_concurrency()));
  return cores;
}

}  // namespace apps
