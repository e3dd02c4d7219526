// SPDX-License-Identifier: Apache-2.0
// Sums over ranks by kernels that read the GPUs of all ranks of a node: threads with fake GPUs.
#include <chrono>
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/oracle.hpp"
#include "tests/unit/gpu_jobs.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;

namespace {

Tensor on_gpu(const Tensor& value, int device) {
  Tensor tensor = Tensor::empty(value.shape(), value.dtype(), gpu(device));
  tensor.view().copy_from(value);
  return tensor;
}

Tensor value_of(int rank, std::int64_t count, DType dtype, std::uint64_t seed) {
  return test::random_tensor({count}, dtype, rank, seed);
}

void require_canonical(const KVStore& kv, int key, std::int64_t count, DType dtype,
                       std::uint64_t seed) {
  Tensor found = Tensor::zeros({count}, dtype);
  kv.pull(key, found);
  const Tensor expected =
      test::reduced_random(tutti::ReduceOp::sum, {count}, dtype, kv.num_workers(), seed);
  const bool is_equal =
      found.size_bytes() == 0 ||
      std::equal(found.bytes(), found.bytes() + found.size_bytes(), expected.bytes());
  test::require_equal(is_equal, true, "the bits of key " + std::to_string(key));
}

/// Makes one push, and then two more and a pull once `spoil` has run on the last rank.
test::Outcomes push_while(int ranks, const Settings& settings, const std::function<void()>& spoil) {
  return test::as_ranks({ranks}, settings, [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const Tensor value = on_gpu(value_of(world.rank(), 5000, DType::float32, 1), world.rank());
    kv.init(1, on_gpu(Tensor::zeros({5000}), world.rank()));
    kv.push(1, value);
    require_canonical(kv, 1, 5000, DType::float32, 1);
    kv.barrier();
    if (world.rank() == ranks - 1) spoil();
    kv.push(1, value);
    kv.push(1, value);
    require_canonical(kv, 1, 5000, DType::float32, 1);
  });
}

Settings with_timeout(std::chrono::duration<double> timeout) {
  Settings settings = test::by("peers");
  settings.timeout = timeout;
  return settings;
}

}  // namespace

TEST_CASE(
    "sums by peers have the canonical bits, for all types and sizes, with a GPU each or one") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    if (test::kFewCases && ranks > 3) break;
    for (const bool is_shared : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(is_shared);
      const test::FakeGpus gpus(ranks, static_cast<unsigned>(ranks));
      const auto outcomes = test::as_ranks({ranks}, test::by("peers"), [&](Communicator& world) {
        const int device = is_shared ? 0 : world.rank();
        auto kv = KVStore::create(world);
        std::vector<tutti::Key> keys;
        std::vector<Tensor> values;
        // Three chunks, of which the last one takes the first one's half again.
        const std::int64_t most = ranks == 3 ? 2'500'003 : 1'003;
        const std::vector<std::int64_t> counts = {0, 1, 70'001, most};
        std::vector<std::pair<std::int64_t, DType>> kinds;
        for (const DType dtype : test::kDTypes) {
          for (const std::int64_t count : counts) {
            if (count > 100'000 && dtype != DType::float64) continue;
            if (test::kFewRounds && count > 100'000 && is_shared) continue;
            const int key = static_cast<int>(keys.size());
            kinds.emplace_back(count, dtype);
            kv.init(key, on_gpu(Tensor::zeros({count}, dtype), device));
            keys.emplace_back(key);
            values.push_back(on_gpu(value_of(world.rank(), count, dtype, 3), device));
          }
        }
        for (int step = 0; step < 2; ++step) kv.push(keys, values);
        for (std::size_t i = 0; i < kinds.size(); ++i) {
          require_canonical(kv, static_cast<int>(i), kinds[i].first, kinds[i].second, 3);
        }
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("what fits into the windows is summed by the kernel that has a use for it") {
  for (const int ranks : {2, 4, 7}) {
    if (test::kFewCases && ranks > 4) break;
    const std::int64_t grain = 256 * ranks;  // sizes of the keys of a type are padded to it
    const std::int64_t most = ((16 << 20) / grain - (4000 + grain - 1) / grain) * grain / 4;
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{100'003}, most, most + 1}) {
      if (count > 1'000'000 && (test::kFewCases || ranks != 2)) break;
      CAPTURE(ranks);
      CAPTURE(count);
      const bool fits = count <= most;
      const test::FakeGpus gpus(ranks, static_cast<unsigned>(ranks));
      const auto outcomes = test::as_ranks({ranks}, test::by("peers"), [&](Communicator& world) {
        auto kv = KVStore::create(world);
        const int device = world.rank();
        const std::vector<tutti::Key> keys = {1, 2};
        kv.init(keys, {on_gpu(Tensor::zeros({500}, DType::float64), device),
                       on_gpu(Tensor::zeros({count}), device)});
        int launches = 0;
        for (const std::uint64_t step : {1, 2, 3}) {  // the first push makes the windows
          kv.barrier();
          launches = gpus->launches();
          kv.barrier();
          kv.push(keys, {on_gpu(value_of(device, 500, DType::float64, step), device),
                         on_gpu(value_of(device, count, DType::float32, step), device)});
          kv.barrier();
          launches = gpus->launches() - launches;
          require_canonical(kv, 1, 500, DType::float64, step);
          require_canonical(kv, 2, count, DType::float32, step);
        }
        test::require_equal(launches == 2 * ranks, fits, "a sum of values and an update");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("a store goes on with its windows after a push that is refused") {
  const test::FakeGpus gpus(4, 3);
  const auto outcomes = test::as_ranks({4}, test::by("peers"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const int device = world.rank();
    for (const int key : {1, 2}) kv.init(key, on_gpu(Tensor::zeros({3000}), device));
    for (std::uint64_t step = 0; step < 6; ++step) {
      const Tensor value = on_gpu(value_of(device, 3000, DType::float32, step), device);
      if (step % 2 == 1) {
        try {
          kv.push(world.rank() == 2 ? 1 : 2, value);
          test::require_equal(true, false, "a push of different keys is refused");
        } catch (const tutti::Error& error) {
          if (!error.recoverable()) throw;
        }
      }
      kv.push(1, value);
      require_canonical(kv, 1, 3000, DType::float32, step);
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("pushes that fit into the windows and larger ones follow one another") {
  const test::FakeGpus gpus(2, 3);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const std::int64_t counts[] = {1003, 2'500'003};  // of float64: three chunks
    for (const int key : {0, 1}) {
      kv.init(key, on_gpu(Tensor::zeros({counts[key]}, DType::float64), world.rank()));
    }
    for (std::uint64_t step = 0; step < (test::kFewRounds ? 3 : 7); ++step) {
      const int key = step % 3 == 1 ? 1 : 0;
      kv.push(key, on_gpu(value_of(world.rank(), counts[key], DType::float64, step), world.rank()));
      require_canonical(kv, key, counts[key], DType::float64, step);
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("optimizers on GPUs that sum by peers have the bits of keys on the cpu") {
  for (const char* optimizer : {"adam", "sgd,momentum=0.9,clip_global_norm=1"}) {
    const int ranks = test::kFewCases ? 3 : 5;
    const test::FakeGpus gpus(ranks, 5);
    const auto outcomes = test::as_ranks({ranks}, test::by("peers"), [&](Communicator& world) {
      auto there = KVStore::create(world);
      auto here = KVStore::create(world);
      for (KVStore* kv : {&there, &here}) kv->set_optimizer(tutti::optimizer::create(optimizer));
      const Tensor start = Tensor::ones({2003});
      there.init(1, on_gpu(start, world.rank()));
      here.init(1, start);
      for (std::uint64_t step = 0; step < 4; ++step) {
        const Tensor gradient = value_of(world.rank(), 2003, DType::float32, step);
        there.push(1, on_gpu(gradient, world.rank()));
        here.push(1, gradient);
      }
      Tensor found = Tensor::zeros({2003});
      there.pull(1, found);
      const tutti::ConstTensorView expected = here.view(1);
      test::require_equal(
          std::equal(found.bytes(), found.bytes() + found.size_bytes(), expected.bytes()), true,
          "the weights' bits");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("stores that come and go have the memory of peers that went, and live ones their own") {
  const test::FakeGpus gpus(2, 11);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& job) {
    const tutti::Device mine = gpu(job.rank());
    const auto push_and_pull = [&](KVStore& kv, float value) {
      for (int i = 0; i < 2; ++i) kv.push(1, Tensor::full({1'003}, value, DType::float32, mine));
      test::require_equal(test::pulled<float>(kv, 1, 1'003)[1'002], 2 * value, "key 1[1002]");
    };
    std::size_t after_two = 0;
    for (int i = 0; i < 6; ++i) {
      auto first = KVStore::create(job);
      auto second = KVStore::create(job);
      for (KVStore* kv : {&first, &second}) {
        kv->init(1, Tensor::zeros({1'003}, DType::float32, mine));
      }
      push_and_pull(first, 1);
      push_and_pull(second, 2);
      push_and_pull(first, 3);
      if (i == 1) after_two = gpus->used(job.rank());
      if (i > 1) test::require_equal(gpus->used(job.rank()), after_two, "bytes of the GPU");
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("two stores that sum by peers do not meet") {
  const test::FakeGpus gpus(2, 11);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& world) {
    auto one = KVStore::create(world);
    auto other = KVStore::create(world);
    for (KVStore* kv : {&one, &other}) kv->init(1, on_gpu(Tensor::zeros({999}), world.rank()));
    const Tensor value = on_gpu(value_of(world.rank(), 999, DType::float32, 4), world.rank());
    for (int step = 0; step < 3; ++step) {
      one.push(1, value);
      other.push(1, value);
      require_canonical(one, 1, 999, DType::float32, 4);
      require_canonical(other, 1, 999, DType::float32, 4);
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("an allreduce of a communicator goes by peers, too, in place and to another tensor") {
  for (const int ranks : {2, 5}) {
    if (test::kFewCases && ranks > 2) break;
    const test::FakeGpus gpus(ranks, 11);
    const auto outcomes = test::as_ranks({ranks}, test::by("peers"), [&](Communicator& world) {
      const int device = world.rank();
      std::uint64_t seed = 0;
      // Sums as large as the windows, and larger ones, in turn: chunks lie where the windows do.
      constexpr std::int64_t kWindow = 4 << 20;
      std::vector<std::int64_t> counts = {999, 0, 1, kWindow + 1, kWindow};
      if (!test::kFewRounds) counts.insert(counts.begin() + 3, {kWindow, kWindow + 1, 999});
      for (const std::int64_t count : counts) {
        if (count > 1000 && ranks > 2) continue;
        const Tensor expected =
            test::reduced_random(tutti::ReduceOp::sum, {count}, DType::float32, ranks, ++seed);
        const auto require_right = [&](const Tensor& there) {
          Tensor sum = Tensor::zeros({count});
          sum.view().copy_from(there);
          test::require_equal(count == 0 || std::equal(sum.bytes(), sum.bytes() + sum.size_bytes(),
                                                       expected.bytes()),
                              true, "the bits of " + std::to_string(count) + " elements");
        };
        Tensor value = on_gpu(value_of(device, count, DType::float32, seed), device);
        Tensor sum = on_gpu(Tensor::zeros({count}), device);
        world.allreduce(value, sum.view());
        require_right(sum);
        world.allreduce(value.view());
        require_right(value);
      }
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("ranks may use different copies of a communicator in one sum by peers") {
  const test::FakeGpus gpus(2, 13);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& world) {
    Communicator copy = world;
    // First both ranks use the same copy, once each copy, which then could have windows of its own;
    // then they use different ones.
    constexpr bool kUsesCopy[][2] = {{false, false}, {true, true}, {false, true}, {true, false}};
    for (std::uint64_t step = 0; step < std::size(kUsesCopy); ++step) {
      Tensor value = on_gpu(value_of(world.rank(), 777, DType::float32, step), world.rank());
      (kUsesCopy[step][world.rank()] ? copy : world).allreduce(value.view());
      Tensor sum = Tensor::zeros({777});
      sum.view().copy_from(value);
      const Tensor expected =
          test::reduced_random(tutti::ReduceOp::sum, {777}, DType::float32, 2, step);
      test::require_equal(std::equal(sum.bytes(), sum.bytes() + sum.size_bytes(), expected.bytes()),
                          true, "the bits of step " + std::to_string(step));
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("keys on two GPUs of each rank are pushed in turn, each by the reducer of its GPU") {
  const test::FakeGpus gpus(4, 9);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const int devices[] = {world.rank(), 2 + world.rank()};
    for (const int key : {0, 1}) {
      kv.init(key, on_gpu(Tensor::zeros({70'001}), devices[key]));
    }
    std::size_t used = 0;
    for (std::uint64_t step = 0; step < 8; ++step) {
      const int key = static_cast<int>(step % 2);
      const Tensor value = value_of(world.rank(), 70'001, DType::float32, step);
      kv.push(key, on_gpu(value, devices[key]));
      require_canonical(kv, key, 70'001, DType::float32, step);
      world.barrier();
      if (step == 3) used = gpus->used(devices[0]);
    }
    test::require_equal(gpus->used(devices[0]), used, "bytes in use after more pushes");
    Tensor sum = on_gpu(value_of(world.rank(), 999, DType::float32, 20), devices[1]);
    world.allreduce(sum.view());
    world.allreduce(on_gpu(Tensor::ones({5}), devices[0]).view());
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a store goes on on one GPU after peers could not sum on another") {
  const test::FakeGpus gpus(4, 2);
  gpus->cut_off(3);
  const auto outcomes = test::as_ranks({2}, test::by("peers"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const int first = world.rank();
    const int second = 2 + world.rank();
    kv.init(1, on_gpu(Tensor::zeros({40}), first));
    kv.init(2, on_gpu(Tensor::zeros({40}), second));
    for (std::uint64_t step = 0; step < 3; ++step) {
      kv.push(1, on_gpu(value_of(world.rank(), 40, DType::float32, step), first));
      require_canonical(kv, 1, 40, DType::float32, step);
      try {
        kv.push(2, on_gpu(Tensor::ones({40}), second));
        test::require_equal(true, false, "a push on gpu(3) is refused");
      } catch (const tutti::Error& error) {
        if (!error.recoverable()) throw;
      }
      world.barrier();
      // The tensors lie in one slab of 8 MiB.
      test::require_equal(gpus->used(second), std::size_t{8} << 20, "memory in use");
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("where peers cannot sum, all ranks are told why, and the store goes on") {
  const auto push = [](const std::vector<int>& layout, const test::FakeGpus& /*gpus*/) {
    return test::as_ranks(layout, test::by("peers"), [&](Communicator& world) {
      auto kv = KVStore::create(world);
      const int device = world.rank() % 8;
      kv.init(1, on_gpu(Tensor::zeros({4}), device));
      kv.init(2, Tensor::zeros({4}));
      const Tensor value = on_gpu(Tensor::ones({4}), device);
      try {
        kv.push(1, value);
      } catch (const tutti::Error& error) {
        kv.push(2, Tensor::ones({4}));
        throw;
      }
    });
  };
  {
    const test::FakeGpus gpus(8);
    CHECK(test::all_say(push({2, 1}, gpus), ErrorCode::invalid_argument,
                        "TUTTI_GPU_PATH=peers sums between the GPUs of the ranks of one node, and "
                        "this job has 2; take auto, nccl or host"));
    CHECK(test::all_say(push({9}, gpus), ErrorCode::invalid_argument,
                        "of up to 8 ranks, and this job has 9; take auto, nccl or host"));
  }
  {
    const test::FakeGpus gpus(2);
    gpus->lose_peer_access();
    CHECK(test::all_say(push({2}, gpus), ErrorCode::invalid_argument,
                        "TUTTI_GPU_PATH=peers: fake GPUs has no memory that several processes can "
                        "use; take auto, nccl or host"));
  }
  const test::FakeGpus gpus(3);
  gpus->cut_off(1);
  CHECK(test::all_say(push({3}, gpus), ErrorCode::communication, "gpu(1): no peer access"));
}

TEST_CASE("a GPU that breaks down or hangs ends a sum by peers on every rank") {
  for (const int ranks : {2, 3}) {
    {
      const test::FakeGpus gpus(ranks, 5);
      const auto outcomes = push_while(ranks, with_timeout(std::chrono::hours(1)),
                                       [&] { gpus->break_down(ranks - 1); });
      const std::string last = std::to_string(ranks - 1);
      CHECK(test::all_say(outcomes, ErrorCode::communication, "rank " + last + " (host"));
      CHECK(test::all_say(outcomes, ErrorCode::communication, "gpu(" + last + ") is broken"));
    }
    const test::FakeGpus gpus(ranks, 7);
    const auto outcomes =
        push_while(ranks, with_timeout(test::kShortDeadline), [&] { gpus->hang(ranks - 1); });
    for (const auto& outcome : outcomes) {
      REQUIRE(outcome);
      CHECK(outcome->code() == ErrorCode::timeout);
      CHECK_FALSE(outcome->recoverable());
    }
  }
}

TEST_CASE("a rank that is gone ends the others' sum by peers") {
  const test::FakeGpus gpus(3, 2);
  const auto outcomes =
      test::as_ranks({3}, with_timeout(std::chrono::hours(1)), [&](Communicator& world) {
        auto kv = KVStore::create(world);
        const Tensor value = on_gpu(Tensor::ones({50}), world.rank());
        kv.init(1, on_gpu(Tensor::zeros({50}), world.rank()));
        kv.push(1, value);
        if (world.rank() == 1) return;
        kv.push(1, value);
      });
  CHECK_FALSE(outcomes[1]);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    REQUIRE(outcomes[rank]);
    CHECK(std::string(outcomes[rank]->what()).find("rank 1") != std::string::npos);
  }
}
