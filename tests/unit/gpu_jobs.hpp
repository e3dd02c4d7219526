// SPDX-License-Identifier: Apache-2.0
// Helpers of tests whose ranks have a fake GPU each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/threads.hpp"

namespace test {

inline const std::vector<std::vector<int>> kLayouts = {{1},    {2},    {3},       {1, 1},
                                                       {2, 2}, {1, 2}, {1, 1, 1}, {3, 3}};
inline const std::vector<std::vector<int>> kSmallLayouts = {{3}, {1, 2}, {2, 2}};

template <class T>
std::vector<T> pulled(const tutti::KVStore& kv, const tutti::Key& key, std::int64_t count) {
  tutti::Tensor out = tutti::Tensor::zeros({count}, tutti::dtype_of<T>);
  kv.pull(key, out);
  return {out.values<T>().begin(), out.values<T>().end()};
}

inline tutti::Tensor ramp(std::int64_t count, tutti::DType dtype, int rank, tutti::Device device) {
  tutti::Tensor tensor = tutti::Tensor::empty({count}, dtype, device);
  tensor.view().copy_from(tutti::Tensor::from(ramp_values(static_cast<std::size_t>(count), rank)));
  return tensor;
}

inline tutti::Tensor random_numbers_on(tutti::Device device, std::int64_t count, unsigned seed) {
  const auto numbers = random_values(static_cast<std::size_t>(count), seed);
  tutti::Tensor tensor = tutti::Tensor::empty({count}, tutti::DType::float32, device);
  tensor.view().copy_from(tutti::Tensor::from(std::span<const float>(numbers)));
  return tensor;
}

inline float first_of(const tutti::KVStore& kv, const tutti::Key& key, std::int64_t count) {
  tutti::Tensor out = tutti::Tensor::zeros({count});
  kv.pull(key, out);
  return out.values<float>()[0];
}

inline constexpr std::int64_t kElements = 100;

inline tutti::Tensor ones(tutti::Device device) {
  return tutti::Tensor::ones({kElements}, tutti::DType::float32, device);
}

/// A store with one key on each rank's own GPU, which all ranks have pushed once, and whose sum is
/// complete.
inline tutti::KVStore pushed_once(const tutti::Communicator& communicator) {
  auto kv = tutti::KVStore::create(communicator);
  const auto mine = tutti::gpu(communicator.rank());
  kv.init(1, tutti::Tensor::zeros({kElements}, tutti::DType::float32, mine));
  kv.push(1, ones(mine));
  tutti::synchronize(mine);
  kv.barrier();
  return kv;
}

/// Makes every rank push again and again. Before its second push rank 1 calls `spoil` with its GPU.
template <class Spoil>
Outcomes push_while(const std::vector<int>& layout, const tutti::Settings& settings, Spoil spoil) {
  return as_ranks(layout, settings, [&](tutti::Communicator& communicator) {
    auto kv = pushed_once(communicator);
    const auto mine = tutti::gpu(communicator.rank());
    const tutti::Tensor value = ones(mine);
    if (communicator.rank() == 1) spoil();
    kv.push(1, value);
    kv.push(1, value);
    tutti::synchronize(mine);  // with NCCL on one node, pushes return before their sums
  });
}

/// Rank 1's GPU hangs in the copy of its push to the host, because its node has no other rank: that
/// ends the push on both ranks. `prepare` makes a store and returns its push.
inline void check_that_a_hang_ends_the_push(
    const std::function<std::function<void()>(const tutti::Communicator&)>& prepare) {
  const FakeGpus gpus(2);
  tutti::Settings settings = by("auto");
  settings.timeout = kShortDeadline;
  std::atomic<int> waiting{1};
  const auto outcomes = as_ranks({1, 1}, settings, [&](tutti::Communicator& world) {
    const std::function<void()> push = prepare(world);
    world.barrier();
    if (world.rank() == 0) {
      // The deadline is the copy's, before the ranks agree: no call may be the first to reach it.
      while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return push();
    }
    const CountDown ending(waiting);
    gpus->hang(1);
    push();
  });
  for (const auto& outcome : outcomes) {
    REQUIRE(outcome);
    CHECK_FALSE(outcome->recoverable());
  }
  CHECK(std::string(outcomes[1]->what()).find("a copy from gpu(1)") != std::string::npos);
  gpus->go_on(1);
}

/// Stores of two groups of the same ranks, each with a key on this rank's GPU.
struct TwoStores {
  explicit TwoStores(const tutti::Communicator& ranks)
      : value(tutti::Tensor::ones({4}, tutti::DType::float32, tutti::gpu(ranks.rank()))),
        other(ranks.split(0, ranks.rank())),
        first(tutti::KVStore::create(ranks)),
        second(tutti::KVStore::create(other)) {
    for (tutti::KVStore* kv : {&first, &second}) {
      kv->init(1, tutti::Tensor::zeros({4}, tutti::DType::float32, tutti::gpu(ranks.rank())));
      kv->push(1, value);
    }
  }
  /// Returns the text of the error that the push throws; empty if it throws none.
  std::string push_in_thread(tutti::KVStore& kv) const {
    std::string text;
    std::thread([&] {
      try {
        kv.push(1, value);
      } catch (const tutti::Error& error) {
        text = error.what();
      }
    }).join();
    return text;
  }
  static void check(const tutti::KVStore& kv) {
    require_equal(pulled<float>(kv, 1, 4)[0], 2.0f, "key 1");
  }
  void check() const {
    for (const tutti::KVStore* kv : {&first, &second}) check(*kv);
  }

  tutti::Tensor value;
  tutti::Communicator other;
  tutti::KVStore first;
  tutti::KVStore second;
};

}  // namespace test
