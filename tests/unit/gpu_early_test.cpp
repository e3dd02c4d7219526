// SPDX-License-Identifier: Apache-2.0
// Ranks whose GPUs sum by NCCL's stand-in on one node: pushes return when their work is in the
// stream, and fail later.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <thread>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/unit/gpu_jobs.hpp"

using test::first_of;
using test::kElements;
using test::ones;
using test::pulled;
using test::pushed_once;
using test::ramp;
using tutti::Communicator;
using tutti::Device;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;

namespace {

/// True if the work that is in this rank's stream now ends within 30 s, whoever ends it.
bool stream_ends(test::FakeAccelerator& gpus, int device) {
  const auto event = gpus.create_event(device);
  gpus.record(event, device, nullptr);
  for (int i = 0; i < 30'000; ++i) {
    if (gpus.done(event)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("a push on the GPUs of one node returns before they have summed, and so do 16 of them") {
  const test::FakeGpus gpus(2, 3);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    auto kv = pushed_once(communicator);
    const Device mine = gpu(communicator.rank());
    gpus->hang(communicator.rank());
    kv.barrier();
    for (int i = 0; i < 16; ++i) kv.push(1, ones(mine));
    if (gpus->pending() == 0) test::fail_here("the GPUs are through");
    kv.barrier();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      gpus->go_on(communicator.rank());
    });
    for (int i = 0; i < 4; ++i) kv.push(1, Tensor::full({kElements}, 7, DType::float32, mine));
    later.join();
    test::require_equal(first_of(kv, 1, kElements), 14.0f, "key 1");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("what an optimizer made of pushes that nobody waited for is what it makes of others") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const test::FakeGpus gpus(3, seed);
    const auto outcomes = test::as_ranks({3}, test::by("auto"), [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      const auto train = [&](bool waits) {
        auto kv = KVStore::create(communicator);
        kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.25, .momentum = 0.5}));
        kv.init(1, ramp(kElements, DType::float32, 1, mine));
        for (int step = 0; step < 5; ++step) {
          kv.push(1, ramp(kElements, DType::float32, communicator.rank() + step, mine));
          if (waits) tutti::synchronize(mine);
        }
        return pulled<float>(kv, 1, kElements);
      };
      if (train(false) != train(true)) test::fail_here("the weights differ");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a push that goes wrong after it has returned is an error of whatever call comes next") {
  const auto calls = {"push", "pull", "synchronize", "barrier"};
  for (const std::string call : calls) {
    CAPTURE(call);
    Settings settings = test::by("auto");
    settings.timeout = std::chrono::hours(1);
    const test::FakeGpus gpus(2, 4);
    const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& communicator) {
      auto kv = pushed_once(communicator);
      const Device mine = gpu(communicator.rank());
      if (communicator.rank() == 1) gpus->hang(1);
      kv.barrier();
      kv.push(1, ones(mine));
      kv.barrier();
      if (communicator.rank() == 1) gpus->fail_collectives("a cable was pulled");
      if (!stream_ends(*gpus.accelerator, 0)) test::fail_here("the stream waits for ever");
      if (call == "push") kv.push(1, ones(mine));
      if (call == "pull") static_cast<void>(first_of(kv, 1, kElements));
      if (call == "synchronize") tutti::synchronize(mine);
      kv.barrier();
    });
    CHECK(test::all_say(outcomes, ErrorCode::communication, "a cable was pulled"));
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome);
      CHECK_FALSE(outcome->recoverable());
    }
  }
}

TEST_CASE("a GPU that hangs is named by the deadline, and keeps no stream, if no call follows") {
  Settings settings = test::by("auto");
  settings.timeout = test::kShortDeadline;
  const test::FakeGpus gpus(3, 6);
  const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& communicator) {
    auto kv = pushed_once(communicator);
    if (communicator.rank() == 1) gpus->hang(1);
    kv.barrier();
    kv.push(1, ones(gpu(communicator.rank())));
    // Waits like a program that waits for its stream by itself.
    const bool ends =
        communicator.rank() == 1 || stream_ends(*gpus.accelerator, communicator.rank());
    if (!ends) test::fail_here("the stream waits for ever");
    tutti::synchronize(gpu(communicator.rank()));
  });
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "for its GPU, whose work has not ended"));
  // A rank that notices its deadline a second late leaves the error to the others, which blame no
  // rank.
  const bool names_the_gpu =
      test::all_say(outcomes, ErrorCode::timeout, "rank 1 (host") &&
      test::all_say(outcomes, ErrorCode::timeout, ": what was put into its stream before");
  const bool names_all = test::all_say(outcomes, ErrorCode::timeout, "wait for each other");
  CHECK((names_the_gpu || names_all));
}

TEST_CASE("an updater sees sums that have been made, on one node too") {
  const test::FakeGpus gpus(2, 8);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    auto kv = KVStore::create(communicator);
    const Device mine = gpu(communicator.rank());
    kv.init(1, Tensor::zeros({4}, DType::float32, mine));
    std::vector<float> seen;
    kv.set_updater([&](const Key&, const tutti::ConstTensorView& sum, tutti::TensorView stored) {
      const auto* values = reinterpret_cast<const float*>(sum.bytes());  // a fake GPU's memory
      seen.assign(values, values + 4);
      stored += sum;
    });
    kv.push(1, Tensor::full({4}, 3, DType::float32, mine));
    test::require_equal(seen[0], 6.0f, "what the updater read");
    test::require_equal(first_of(kv, 1, 4), 6.0f, "key 1");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a store that is destroyed waits for its sums, and the peers' are whole") {
  for (const unsigned seed : {1u, 2u}) {
    const test::FakeGpus gpus(2, seed);
    const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      Tensor out = Tensor::zeros({kElements}, DType::float32, mine);
      {
        auto kv = pushed_once(communicator);
        if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        kv.pushpull(1, ones(mine), out);
      }
      test::require_equal(test::on_host(out)[kElements - 1], 2.0f, "what was pulled");
    });
    CHECK(test::all_returned(outcomes));
  }
}
