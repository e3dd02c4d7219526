// SPDX-License-Identifier: Apache-2.0
#include "support/core_speed.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sched.h>
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

/// Measures a signal between two threads that answer each other. They give the core away now and
/// then, because there may be only one.
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

/// The seconds of some sums as a call makes them, over arrays that exist already.
double seconds_of_sums(std::size_t count, int repeats) {
  std::vector<float> left(count, 1);
  std::vector<float> right(count, 1);
  std::vector<float> sum(count);
  const auto begin = Clock::now();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
    left[static_cast<std::size_t>(repeat)] = sum[static_cast<std::size_t>(repeat)];
  }
  return since(begin);
}

/// The bytes per second that some threads read and write together.
double measure_sums(unsigned threads, std::size_t count, int repeats) {
  constexpr double kStreams = 3;  // two are read, one is written
  std::vector<double> seconds(threads);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) {
    others.emplace_back([&, i] { seconds[i] = seconds_of_sums(count, repeats); });
  }
  seconds[0] = seconds_of_sums(count, repeats);
  for (std::thread& other : others) other.join();
  const double longest = *std::max_element(seconds.begin(), seconds.end());
  return threads * kStreams * sizeof(float) * static_cast<double>(count) * repeats / longest;
}

unsigned usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&cores));
}

}  // namespace

CoreSpeed measure_cores() {
  CoreSpeed cores;
  cores.call = measure_call();
  cores.signal = measure_signal();
  // Size of each of three arrays, in floats.
  constexpr std::size_t kInCache = std::size_t{64} << 10;
  constexpr std::size_t kInMemory = std::size_t{16} << 20;
  cores.core_rate = measure_sums(1, kInCache, 400);
  cores.memory_rate = std::min(cores.core_rate, measure_sums(1, kInMemory, 3));
  cores.node_rate = std::max(cores.core_rate, measure_sums(usable_cores(), kInCache, 400));
  return cores;
}

}  // namespace apps
