// SPDX-License-Identifier: Apache-2.0
// Ranks whose GPUs sum values in place, in one node or over all nodes.
#include <chrono>
#include <doctest/doctest.h>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/unit/gpu_jobs.hpp"

using test::first_of;
using test::kLayouts;
using test::kSmallLayouts;
using test::pulled;
using test::push_while;
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

TEST_CASE("large keys are summed from where their values are, which stay as they are") {
  for (const bool has_optimizer : {false, true}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const test::FakeGpus gpus(2, 5);
      const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
        const int rank = communicator.rank();
        const Device mine = gpu(rank);
        auto kv = KVStore::create(communicator);
        if (has_optimizer)
          kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=1,multi_precision=true"));
        const std::vector<std::int64_t> counts = {7, 600'001, 1'000, 524'288};
        std::vector<Key> keys;
        for (std::size_t k = 0; k < counts.size(); ++k) {
          keys.emplace_back(static_cast<int>(k));
          kv.init(keys.back(), Tensor::zeros({counts[k]}, dtype, mine));
        }
        for (int step = 1; step < (test::kFewRounds ? 3 : 5); ++step) {
          std::vector<Tensor> values;
          for (const std::int64_t count : counts) values.push_back(ramp(count, dtype, rank, mine));
          kv.push(keys, values);
          for (std::size_t k = 0; k < counts.size(); ++k) {
            Tensor out = Tensor::zeros({counts[k]});
            kv.pull(keys[k], out, tutti::Cast::yes);
            const std::size_t last = static_cast<std::size_t>(counts[k]) - 1;
            const auto sum = static_cast<float>(2 * (last % 7) + 1);
            const float expected = has_optimizer ? -sum * static_cast<float>(step) : sum;
            test::require_equal(out.values<float>()[last], expected, "key " + std::to_string(k));
            out.view().copy_from(values[k]);
            test::require_equal(out.values<float>()[last], static_cast<float>(last % 7 + rank),
                                "a value after the push");
          }
        }
        // One rank has two values, which it sums first; the others' are still summed directly.
        if (has_optimizer) return;
        const Tensor one = Tensor::ones({counts[1]}, dtype, mine);
        rank == 1 ? kv.push(1, {one, one}) : kv.push(1, one);
        Tensor out = Tensor::zeros({counts[1]});
        kv.pull(1, out, tutti::Cast::yes);
        test::require_equal(out.values<float>()[600'000], 3.0f, "key 1 of several values");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("an optimizer's large keys are summed in rounds, which take one window's memory") {
  // 5 keys of 12 MB, their values, and a window for two of them. A sum for each would not fit.
  constexpr std::size_t kMemory = 175'000'000;
  constexpr std::int64_t kLarge = 3'000'001;
  const test::FakeGpus gpus(2, 9, kMemory);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const Device mine = gpu(rank);
    auto kv = KVStore::create(communicator);
    kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=1"));
    std::vector<std::int64_t> counts = {1'000, kLarge, kLarge, kLarge, 7};
    if (!test::kFewRounds) counts.insert(counts.end(), {kLarge, kLarge});
    const int rounds = test::kFewRounds ? 2 : 3;
    std::vector<Key> keys;
    std::vector<Tensor> values;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      keys.emplace_back(static_cast<int>(k));
      kv.init(keys.back(), Tensor::zeros({counts[k]}, DType::float32, mine));
      values.push_back(ramp(counts[k], DType::float32, rank, mine));
    }
    kv.push(0, values[0]);  // the first push joins NCCL
    for (int step = 1; step < (test::kFewRounds ? 3 : 4); ++step) {
      kv.barrier();
      const int launches = gpus->launches();
      kv.barrier();
      kv.push(keys, values);
      kv.barrier();
      if (step > 1)  // the first fills the new bucket
        test::require_equal(gpus->launches() - launches, 2 * (1 + rounds),
                            "launches of both ranks");
      for (std::size_t k = 0; k < counts.size(); ++k) {
        const std::vector<float> found = pulled<float>(kv, keys[k], counts[k]);
        const int times = step + (k == 0 ? 1 : 0);
        const auto expected = test::ramp_sum(static_cast<std::size_t>(counts[k]), 2, -times);
        test::require_equal(test::same_bits(found, expected), true, "key " + std::to_string(k));
      }
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a rank with several values of a large key sums in the rounds of the others") {
  constexpr std::int64_t kLarge = 3'000'001;
  const test::FakeGpus gpus(2, 10);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    const Device mine = gpu(communicator.rank());
    auto kv = KVStore::create(communicator);
    kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=1"));
    for (const int key : {1, 2, 3}) kv.init(key, Tensor::zeros({kLarge}, DType::float32, mine));
    const Tensor one = Tensor::ones({kLarge}, DType::float32, mine);
    kv.push(1, one);
    for (int step = 1; step < 3; ++step) {
      if (communicator.rank() == 1) {
        kv.push({1, 2, 3}, {{one}, {one, one}, {one}});
      } else {
        kv.push({1, 2, 3}, {{one}, {one}, {one}});
      }
      for (const int key : {1, 2, 3}) {
        const float expected = static_cast<float>(-(key == 2 ? 3 : 2) * step - (key == 1 ? 2 : 0));
        test::require_equal(first_of(kv, key, kLarge), expected, "key " + std::to_string(key));
      }
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("an allreduce of tensors on GPUs reads its input where it is, and leaves it") {
  for (const auto& layout : {std::vector{2}, std::vector{2, 1}}) {
    const int ranks = test::size_of_job(layout);
    const test::FakeGpus gpus(ranks, 6);
    const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      for (const std::int64_t count : {0, 1, 7, 1'003}) {
        for (int i = 0; i < 2; ++i) {
          const Tensor input =
              Tensor::full({count}, 1.0 + communicator.rank(), DType::float32, mine);
          Tensor output = Tensor::zeros({count}, DType::float32, mine);
          communicator.allreduce(input, output);
          Tensor same = input.clone();
          communicator.allreduce(same);
          if (count == 0) continue;
          const std::size_t last = static_cast<std::size_t>(count) - 1;
          const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
          test::require_equal(test::on_host(output)[last], sum, "the output");
          test::require_equal(test::on_host(same)[last], sum, "in place");
          test::require_equal(test::on_host(input)[last],
                              static_cast<float>(1 + communicator.rank()), "the input");
        }
      }
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE(
    "NCCL over all nodes sums in every layout, and a GPU that hangs ends all by the deadline") {
  for (const auto& layout : kLayouts) {
    const int ranks = test::size_of_job(layout);
    const test::FakeGpus gpus(ranks, 7);
    const auto outcomes =
        test::as_ranks(layout, test::by("nccl-all"), [&](Communicator& communicator) {
          const Device mine = gpu(communicator.rank());
          auto kv = KVStore::create(communicator);
          kv.init(1, Tensor::zeros({1'003}, DType::float32, mine));
          for (int step = 0; step < 3; ++step) {
            kv.push(1, ramp(1'003, DType::float32, communicator.rank(), mine));
          }
          test::require_equal(pulled<float>(kv, 1, 1'003)[1'002],
                              static_cast<float>(ranks * (1'002 % 7) + ranks * (ranks - 1) / 2),
                              "key 1[1002]");
        });
    CHECK(test::all_returned(outcomes));
  }
  for (const auto& layout : kSmallLayouts) {
    Settings settings = test::by("nccl-all");
    settings.timeout = test::kShortDeadline;
    const test::FakeGpus gpus(test::size_of_job(layout), 7);
    const auto outcomes = push_while(layout, settings, [&] { gpus->hang(1); });
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome);
      CHECK(outcome->code() == ErrorCode::timeout);
    }
  }
}

TEST_CASE("one value of a key after several values of it is summed alone") {
  for (const char* compression : {"", "fp16"}) {
    for (const auto& layout : kLayouts) {
      const int ranks = test::size_of_job(layout);
      const auto times = static_cast<float>(ranks);
      const test::FakeGpus gpus(ranks, 8);
      const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& group) {
        const Device mine = gpu(group.rank());
        auto kv = KVStore::create(group);
        if (*compression != '\0') kv.set_gradient_compression(compression);
        for (const int key : {1, 3}) kv.init(key, Tensor::zeros({7}, DType::float32, mine));
        const auto full = [&](float value) {
          return Tensor::full({7}, value, DType::float32, mine);
        };
        const Tensor one = full(1);
        const Tensor ten = full(10);
        const Tensor hundred = full(100);
        kv.push(1, {one, ten});
        test::require_equal(first_of(kv, 1, 7), 11.0f * times, "two values");
        kv.push(1, hundred);
        test::require_equal(first_of(kv, 1, 7), 100.0f * times, "one value after two");
        kv.push({1, 3}, {{one, ten}, {hundred}});
        kv.push({1, 3}, {hundred, one});
        test::require_equal(first_of(kv, 1, 7), 100.0f * times, "key 1 of a list");
        test::require_equal(first_of(kv, 3, 7), 1.0f * times, "key 3 of a list");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
  const test::FakeGpus gpus(1, 8);
  auto kv = KVStore::create("device");
  kv.init(1, Tensor::zeros({7}, DType::float32, gpu(0)));
  const Tensor one = Tensor::ones({7}, DType::float32, gpu(0));
  kv.push(1, {one, one});
  kv.push(1, one);
  CHECK(first_of(kv, 1, 7) == 1);
}
