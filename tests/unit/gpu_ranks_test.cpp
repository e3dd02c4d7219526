// SPDX-License-Identifier: Apache-2.0
// Several ranks, each with a fake GPU: sums by every path, and failures of one of them.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/gpu_jobs.hpp"

using test::first_of;
using test::kLayouts;
using test::kSmallLayouts;
using test::pulled;
using test::push_while;
using test::ramp;
using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;

// --- sums ----------------------------------------------------------------------------------------

// Several ranks, each with a fake GPU: the sum by way of the host, by NCCL's stand-in, and by both.

TEST_CASE("a push over ranks sums values on GPUs, in every layout, by every path") {
  for (const auto& layout : kLayouts) {
    for (const char* path : {"auto", "host"}) {
      for (const unsigned seed : {1u, 2u}) {
        if (test::kFewCases && seed != 1) continue;
        const int ranks = test::size_of_job(layout);
        const test::FakeGpus gpus(ranks, seed);
        CAPTURE(path);
        const auto outcomes =
            test::as_ranks(layout, test::by(path), [&](Communicator& communicator) {
              const Device mine = gpu(communicator.rank());
              auto kv = KVStore::create(communicator);
              // Large enough that slots are used again; where that takes too long, not.
              const bool is_long =
                  seed == 1 && (layout == std::vector{1, 1} || (ranks == 4 && !test::kFewCases));
              const std::int64_t many = test::kFewRounds ? 4'300'003 : 9'000'003;
              const std::vector<std::int64_t> counts = {0, 1, 7, 70'001, is_long ? many : 1'003};
              for (std::size_t i = 0; i < counts.size(); ++i) {
                kv.init(static_cast<int>(i), Tensor::zeros({counts[i]}, DType::float32, mine));
              }
              kv.init(9, Tensor::zeros({33}, DType::int32, mine));
              std::vector<Key> keys;
              std::vector<Tensor> values;
              for (std::size_t i = 0; i < counts.size(); ++i) {
                keys.emplace_back(static_cast<int>(i));
                values.push_back(ramp(counts[i], DType::float32, communicator.rank(), mine));
              }
              keys.emplace_back(9);
              values.push_back(ramp(33, DType::int32, communicator.rank(), mine));
              for (int step = 0; step < 2; ++step) kv.push(keys, values);
              for (std::size_t k = 0; k < counts.size(); ++k) {
                const auto sums = pulled<float>(kv, static_cast<int>(k), counts[k]);
                const auto expected = test::ramp_sum(sums.size(), ranks);
                test::require_equal(test::same_bits(sums, expected), true,
                                    "key " + std::to_string(k));
              }
              const auto sums = pulled<std::int32_t>(kv, 9, 33);
              test::require_equal(
                  sums[32], static_cast<std::int32_t>(test::ramp_sum(33, ranks)[32]), "key 9[32]");
            });
        CHECK(test::all_returned(outcomes));
      }
    }
  }
}

TEST_CASE(
    "by way of the host the sum has the bits of values on the cpu, and so it has on request") {
  for (const auto& layout : kLayouts) {
    for (const bool reproducible : {false, true}) {
      Settings settings = test::by(reproducible ? "auto" : "host");
      settings.reproducible = reproducible;
      const test::FakeGpus gpus(test::size_of_job(layout), 3);
      const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& communicator) {
        const auto values =
            test::random_values(10'007, 20 + static_cast<unsigned>(communicator.rank()));
        const Tensor here = Tensor::from(std::span<const float>(values));
        Tensor there = Tensor::empty({10'007}, DType::float32, gpu(communicator.rank()));
        there.view().copy_from(here);
        auto kv = KVStore::create(communicator);
        kv.init(1, Tensor::zeros({10'007}));
        kv.init(2, Tensor::zeros({10'007}, DType::float32, there.device()));
        kv.push(1, here);
        kv.push(2, there);
        const auto by_host = pulled<float>(kv, 1, 10'007);
        const auto by_gpu = pulled<float>(kv, 2, 10'007);
        for (std::size_t i = 0; i < by_host.size(); ++i) {
          if (by_gpu[i] == by_host[i]) continue;
          test::require_equal(by_gpu[i], by_host[i], "key 2[" + std::to_string(i) + "]");
        }
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("rank 0's value is everybody's first, and optimizers and verify work over ranks") {
  const test::FakeGpus gpus(4, 5);
  const auto outcomes = test::as_ranks({2, 2}, test::by("auto"), [&](Communicator& communicator) {
    const Device mine = gpu(communicator.rank());
    auto kv = KVStore::create(communicator);
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.25}));
    kv.init(1, ramp(100, DType::float32, 10 * communicator.rank(), mine));
    kv.push(1, Tensor::ones({100}, DType::float32, mine));
    test::require_equal(pulled<float>(kv, 1, 100)[3], 3 - 0.25f * 4, "key 1[3]");
    static_cast<void>(kv.verify());
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("replicas on GPUs that differ are found, and the majority heals them") {
  const test::FakeGpus gpus(3, 5);
  const auto outcomes = test::as_ranks({3}, test::by("auto"), [&](Communicator& communicator) {
    const Device mine = gpu(communicator.rank());
    auto kv = KVStore::create(communicator);
    kv.init(1, ramp(100, DType::float32, 1, mine));
    if (communicator.rank() == 1) {
      const tutti::ConstTensorView stored = kv.view(1);
      tutti::TensorView(const_cast<std::byte*>(stored.bytes()), {100}, DType::float32, mine) *= 2;
    }
    const auto result = kv.verify();
    test::require_equal(result.healed, std::uint64_t{1}, "healed replicas");
    test::require_equal(pulled<float>(kv, 1, 100)[5], 6.0f, "key 1[5]");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a key on a GPU on one rank and on the cpu on another is an error, and nothing is lost") {
  for (const auto& layout : {std::vector<int>{3}, std::vector<int>{1, 2}}) {
    const test::FakeGpus gpus(3);
    const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      const Device device = communicator.rank() == 2 ? cpu() : gpu(communicator.rank());
      kv.init(1, Tensor::zeros({4}, DType::float32, device));
    });
    CHECK(test::all_say(outcomes, ErrorCode::mismatch, "init of key 1 (4) float32 on a GPU"));
    CHECK(test::all_say(outcomes, ErrorCode::mismatch, "rank 2 (host"));
  }
}

TEST_CASE("with TUTTI_ASYNC=1 the keys decide whether a push goes on, wherever its values are") {
  const test::FakeGpus gpus(2);
  Settings settings = test::by("auto");
  settings.asynchronous = true;
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& communicator) {
    auto kv = KVStore::create(communicator);
    kv.init({1, 2}, {Tensor::zeros({100}), Tensor::zeros({100})});
    const Device mine = communicator.rank() == 0 ? gpu(0) : cpu();
    Tensor value = ramp(100, DType::float32, communicator.rank(), mine);
    const std::vector<Key> order =
        communicator.rank() == 0 ? std::vector<Key>{1, 2} : std::vector<Key>{2, 1};
    for (const Key& key : order) kv.push(key, value);
    value.fill(7);  // it has been copied
    for (const int key : {1, 2}) {
      test::require_equal(pulled<float>(kv, key, 100)[5], 11.0f, "key[5]");
    }
    kv.barrier();
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a push that differs between ranks is refused before anything is enqueued") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    auto kv = KVStore::create(communicator);
    const Device mine = gpu(communicator.rank());
    for (const int key : {1, 2}) kv.init(key, Tensor::zeros({4}, DType::float32, mine));
    kv.push(1, Tensor::ones({4}, DType::float32, mine));
    tutti::synchronize(mine);
    try {
      kv.push(1 + communicator.rank(), Tensor::ones({4}, DType::float32, mine));
    } catch (const tutti::Error& error) {
      if (error.code() != ErrorCode::mismatch || !error.recoverable()) throw;
    }
    kv.push(2, Tensor::ones({4}, DType::float32, mine));
    test::require_equal(pulled<float>(kv, 2, 4)[0], 2.0f, "key 2[0]");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("two ranks on one GPU are told so where kernels cannot read it, and may take the host") {
  for (const char* path : {"auto", "nccl", "host"}) {
    const test::FakeGpus gpus(3);
    gpus->merge(1, 2);
    gpus->lose_peer_access();
    const auto outcomes = test::as_ranks({3}, test::by(path), [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      const Device mine = gpu(communicator.rank());
      kv.init(1, Tensor::zeros({4}, DType::float32, mine));
      kv.push(1, Tensor::ones({4}, DType::float32, mine));
    });
    if (std::string(path) == "host") {
      CHECK(test::all_returned(outcomes));
      continue;
    }
    CHECK(test::all_say(outcomes, ErrorCode::invalid_argument,
                        "the GPUs of the node's ranks cannot sum: ranks 1 and 2"));
    CHECK(test::all_say(
        outcomes, ErrorCode::invalid_argument,
        "are on one GPU (0000:01:00.0), and NCCL wants a GPU per rank; give each rank its "
        "own (gpu_of, CUDA_VISIBLE_DEVICES), or sum by way of the host with "
        "TUTTI_GPU_PATH=host"));
  }
}

TEST_CASE("groups of a node's ranks have the GPUs of these ranks, and no two of them one") {
  for (const auto& layout : {std::vector{4}, std::vector{2, 2}}) {
    const test::FakeGpus gpus(4);
    const auto outcomes = test::as_ranks(layout, test::by("host"), [&](Communicator& job) {
      const Device own = tutti::gpu_of(job);
      test::require_equal(own.index, job.local_rank(), "the GPU of a rank of the job");
      Communicator group = job.split(job.rank() % 2);
      test::require_equal(tutti::gpu_of(group).index, own.index, "its GPU in a group");
      Communicator alone = group.split(group.rank());
      test::require_equal(tutti::gpu_of(alone).index, own.index, "its GPU in a group of a group");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("ranks on slices of one GPU sum by way of the host, unless NCCL was asked for") {
  for (const char* path : {"auto", "nccl"}) {
    const test::FakeGpus gpus(2);
    gpus->merge(0, 1);
    gpus->slice();
    const auto outcomes = test::as_ranks({2}, test::by(path), [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      const Device mine = gpu(communicator.rank());
      kv.init(1, Tensor::zeros({4}, DType::float32, mine));
      kv.push(1, Tensor::ones({4}, DType::float32, mine));
      test::require_equal(pulled<float>(kv, 1, 4)[0], 2.0f, "key 1[0]");
    });
    if (std::string(path) == "auto") {
      CHECK(test::all_returned(outcomes));
    } else {
      CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, "ranks 0 and 1 (host"));
      CHECK(test::all_say(outcomes, ErrorCode::invalid_argument,
                          "have slices of one GPU (0000:00:00.0), between which NCCL does not"));
    }
  }
}

TEST_CASE("stores of two groups on one GPU are summed from two threads, one after the other") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    test::TwoStores stores(communicator);
    const std::string text = stores.push_in_thread(stores.first);
    if (!text.empty()) test::fail_here("got \"" + text + "\"");
    stores.second.push(1, stores.value);
    stores.check();
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a sum by NCCL beside one of another thread is refused on all ranks, and both go on") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& communicator) {
    test::TwoStores stores(communicator);
    std::string text;
    stores.first.set_updater([&](const Key&, const auto&, const auto&) {  // while its push goes on
      text = stores.push_in_thread(stores.second);
    });
    stores.first.push(1, stores.value);
    if (text.find("are summed from two threads at once") == std::string::npos) {
      test::fail_here("got \"" + text + "\"");
    }
    for (KVStore* kv : {&stores.second, &stores.first}) kv->push(1, stores.value);
    stores.check(stores.second);
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("without NCCL and without a way to peers the host sums, unless NCCL was asked for") {
  for (const char* path : {"auto", "nccl"}) {
    const test::FakeGpus gpus(2);
    gpus->lose_peer_access();
    gpus->lose_node_library("libnccl.so.2 was not found");
    const auto outcomes = test::as_ranks({2}, test::by(path), [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      const Device mine = gpu(communicator.rank());
      kv.init(1, Tensor::zeros({4}, DType::float32, mine));
      kv.push(1, Tensor::ones({4}, DType::float32, mine));
      test::require_equal(pulled<float>(kv, 1, 4)[0], 2.0f, "key 1[0]");
    });
    if (std::string(path) == "auto") {
      CHECK(test::all_returned(outcomes));
    } else {
      CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, "libnccl.so.2 was not found"));
    }
  }
}

// --- faults --------------------------------------------------------------------------------------

// Failures of one rank's GPU: all ranks get the error, none waits.

namespace {

/// Takes all blocks of this size. Small ones come from other memory.
void take_all(std::vector<Tensor>& taken, std::int64_t count, tutti::Device device) {
  try {
    while (true) taken.push_back(Tensor::empty({count}, DType::float32, device));
  } catch (const tutti::Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
}

}  // namespace

TEST_CASE("too little memory on one rank is refused by all, and the store goes on") {
  constexpr std::int64_t kCount = 300'000;
  constexpr std::size_t kMemory = std::size_t{16} << 20;
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      const test::FakeGpus gpus(test::size_of_job(layout), 3, kMemory);
      const auto outcomes = test::as_ranks(layout, test::by(path), [&](Communicator& communicator) {
        auto kv = KVStore::create(communicator);
        const auto mine = gpu(communicator.rank());
        for (const int key : {1, 2}) {
          kv.init(key, Tensor::zeros({key == 1 ? kCount : 4}, DType::float32, mine));
        }
        const Tensor value = Tensor::ones({kCount}, DType::float32, mine);
        std::vector<Tensor> taken;
        if (communicator.rank() == 1) take_all(taken, kCount, mine);
        const auto check_throws = [&](const char* words, const std::function<void()>& call) {
          try {
            call();
          } catch (const tutti::Error& error) {
            if (error.code() != ErrorCode::out_of_memory || !error.recoverable()) throw;
            if (std::string(error.what()).find(words) != std::string::npos) return;
            throw;
          }
          test::fail_here(std::string("expected an error, \"") + words + "...\", got none");
        };
        check_throws("push: ", [&] { kv.push(1, value); });
        kv.push(2, Tensor::ones({4}, DType::float32, mine));
        const auto sum = static_cast<float>(communicator.size());
        test::require_equal(first_of(kv, 2, 4), sum, "key 2");
        taken.clear();
        kv.push(1, value);
        test::require_equal(first_of(kv, 1, kCount), sum, "key 1");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("memory that cannot be pinned is replaced by some that can") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      const test::FakeGpus gpus(test::size_of_job(layout), 9);
      gpus->refuse_to_pin();
      const auto outcomes = test::as_ranks(layout, test::by(path), [&](Communicator& communicator) {
        auto kv = KVStore::create(communicator);
        const auto mine = gpu(communicator.rank());
        constexpr std::int64_t kCount = test::kFewCases ? 70'001 : 1'100'000;
        kv.init(1, Tensor::zeros({kCount}, DType::float32, mine));
        kv.push(1, Tensor::ones({kCount}, DType::float32, mine));
        test::require_equal(first_of(kv, 1, kCount), static_cast<float>(communicator.size()),
                            "key 1");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("a GPU that breaks down in the middle of a push ends it on every rank at once") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      Settings settings = test::by(path);
      // Beyond the test's own limit, so that it has no effect.
      settings.timeout = std::chrono::hours(1);
      const test::FakeGpus gpus(test::size_of_job(layout), 5);
      const auto outcomes = push_while(layout, settings, [&] { gpus->break_down(1); });
      CHECK(test::all_say(outcomes, ErrorCode::communication, "rank 1 (host"));
      CHECK(test::all_say(outcomes, ErrorCode::communication, "gpu(1) is broken"));
    }
  }
}

TEST_CASE("a GPU that hangs ends the push of every rank by the deadline, and names its rank") {
  for (const auto& layout : kSmallLayouts) {
    for (const char* path : {"auto", "host"}) {
      Settings settings = test::by(path);
      settings.timeout = test::kShortDeadline;
      const test::FakeGpus gpus(test::size_of_job(layout), 7);
      const auto outcomes = push_while(layout, settings, [&] { gpus->hang(1); });
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        CAPTURE(rank);
        REQUIRE(outcomes[rank]);
        CHECK(outcomes[rank]->code() == ErrorCode::timeout);
        CHECK_FALSE(outcomes[rank]->recoverable());
        const std::string text = outcomes[rank]->what();
        const bool names_gpu = text.find("for its GPU, whose work has not ended") != text.npos;
        // The text names rank 1, or a rank that waits for that one and says so a second late.
        const bool names_rank = text.find(", which did not arrive") != text.npos;
        CHECK((names_gpu || names_rank));
      }
    }
  }
}

TEST_CASE("collectives that cannot be aborted keep no rank from learning why") {
  for (const auto& layout : {std::vector<int>{3}, std::vector<int>{2, 2}}) {
    Settings settings = test::by("nccl");
    settings.timeout = test::kShortDeadline;
    const test::FakeGpus gpus(test::size_of_job(layout), 7);
    gpus->let_aborts_wait();
    const auto outcomes = push_while(layout, settings, [&] { gpus->hang(1); });
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome);
      CHECK(outcome->code() == ErrorCode::timeout);
    }
  }
}

TEST_CASE("a pull from a GPU that hangs has the group's deadline, and hears of a failure before") {
  for (const bool is_told : {false, true}) {
    Settings settings = test::by("auto");
    settings.timeout = is_told ? std::chrono::minutes(5) : test::kShortDeadline;
    const test::FakeGpus gpus(2, 11);
    std::atomic<bool> has_ended{false};
    const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& communicator) {
      auto kv = KVStore::create(communicator);
      kv.init(1, Tensor::zeros({100}, DType::float32, gpu(communicator.rank())));
      if (communicator.rank() == 0) {
        auto& engine = communicator.group()->engine();
        if (is_told) engine.raise_failure(ErrorCode::communication, "rank 0 gives up");
        // Else the deadline is the pull's: no call of this rank may be the first to reach it.
        while (!is_told && !has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return kv.barrier();
      }
      gpus->hang(1);
      try {
        static_cast<void>(first_of(kv, 1, 100));
      } catch (...) {
        has_ended = true;
        throw;
      }
    });
    REQUIRE(outcomes[1]);
    CHECK(outcomes[1]->code() == (is_told ? ErrorCode::communication : ErrorCode::timeout));
    CHECK_FALSE(outcomes[1]->recoverable());
    const std::string text = outcomes[1]->what();
    CAPTURE(text);
    CHECK(text.find(is_told ? "rank 0 gives up" : "a copy from gpu(1)") != std::string::npos);
    REQUIRE(outcomes[0]);
  }
}
