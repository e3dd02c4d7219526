// SPDX-License-Identifier: Apache-2.0
// Which way values on GPUs are summed over the ranks where TUTTI_GPU_PATH leaves the choice, and
// sums in memory that NCCL's stand-in has registered: threads with a fake GPU each.
#include <doctest/doctest.h>
#include <fstream>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/unit/gpu_jobs.hpp"

using test::kSmallLayouts;
using test::pulled;
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

// What kernels sum has the bits of the host, and what they cannot reach is no error of the store.
TEST_CASE("by itself, a node whose NCCL cannot sum does so by kernels, and says why") {
  for (const bool is_shared : {false, true}) {
    for (const bool reaches : {true, false}) {
      CAPTURE(is_shared);
      CAPTURE(reaches);
      const test::FakeGpus gpus(3);
      if (is_shared) gpus->merge(1, 2);
      if (!is_shared) gpus->lose_node_library("libnccl.so.2 was not found");
      if (!reaches) gpus->cut_off(2);
      Settings settings = test::by("auto");
      settings.log = tutti::LogLevel::warning;
      test::Outcomes outcomes;
      const std::string said = test::written_by([&] {
        outcomes = test::as_ranks({3}, settings, [&](Communicator& communicator) {
          const Device mine = gpu(communicator.rank());
          auto kv = KVStore::create(communicator);
          kv.init(1, Tensor::zeros({4}, DType::float32, mine));
          kv.push(1, Tensor::ones({4}, DType::float32, mine));
          test::require_equal(pulled<float>(kv, 1, 4)[0], 3.0f, "key 1[0]");
        });
      });
      const char* const why = is_shared ? "are on one GPU (0000:01:00.0), and NCCL wants a GPU"
                                        : ": libnccl.so.2 was not found";
      if (!reaches && is_shared) {
        CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, why));
        CHECK(test::all_say(outcomes, ErrorCode::invalid_argument,
                            "nor do kernels that read all GPUs: rank 2"));
        continue;
      }
      CHECK(test::all_returned(outcomes));
      CAPTURE(said);
      CHECK(said.find(why) != std::string::npos);
      const char* const way = reaches ? "summed by kernels that read the GPUs of all ranks: rank"
                                      : "summed by way of the host: rank";
      CHECK(said.find(way) != std::string::npos);
      CHECK((said.find("nor do kernels") != std::string::npos) == !reaches);
    }
  }
}

TEST_CASE("a tuning file says up to which size kernels sum, and NCCL sums what is larger") {
  const test::ScratchFolder folder;
  constexpr std::int64_t kLimit = 600'000;  // float32
  Settings settings = test::by("auto");
  settings.tuning = folder.path() / "tuning";
  std::ofstream(settings.tuning) << "# tutti tuning 1\nranks=3 kind=sum-of-gpus peers="
                                 << kLimit * 4 << "\n";
  const test::FakeGpus gpus(3);
  const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& communicator) {
    const Device mine = gpu(communicator.rank());
    auto kv = KVStore::create(communicator);
    int key = 0;
    for (const std::int64_t count : {std::int64_t{1}, kLimit / 2, kLimit, kLimit + 1}) {
      kv.init(key, Tensor::zeros({count}, DType::float32, mine));
      const Tensor value = ramp(count, DType::float32, communicator.rank(), mine);
      const int before = gpus->collectives();
      for (int step = 0; step < 3; ++step) kv.push(key, value);
      kv.barrier();
      const bool is_by_nccl = gpus->collectives() > before;
      test::require_equal(is_by_nccl, count > kLimit, "NCCL sums " + std::to_string(count));
      const auto sums = pulled<float>(kv, key, count);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto expected = static_cast<float>(i % 7 * 3 + 3);
        if (sums[i] != expected) test::require_equal(sums[i], expected, std::to_string(i));
      }
      kv.barrier();
      ++key;
    }
    Tensor value = ramp(10, DType::float32, communicator.rank(), mine);
    communicator.allreduce(value.view());
    test::require_equal(test::on_host(value)[9], 9.0f, "an allreduce");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a tuning file's sums by kernels are left out where one GPU cannot reach another") {
  const test::ScratchFolder folder;
  Settings settings = test::by("auto");
  settings.log = tutti::LogLevel::warning;
  settings.tuning = folder.path() / "tuning";
  std::ofstream(settings.tuning) << "# tutti tuning 1\nranks=2 kind=sum-of-gpus peers=4096\n";
  const test::FakeGpus gpus(2);
  gpus->cut_off(1);
  test::Outcomes outcomes;
  const std::string said = test::written_by([&] {
    outcomes = test::as_ranks({2}, settings, [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      auto kv = KVStore::create(communicator);
      kv.init(1, Tensor::zeros({4}, DType::float32, mine));
      kv.push(1, Tensor::ones({4}, DType::float32, mine));
      test::require_equal(pulled<float>(kv, 1, 4)[0], 2.0f, "key 1[0]");
    });
  });
  CHECK(test::all_returned(outcomes));
  CAPTURE(said);
  CHECK(said.find(": its row of sums of GPUs by peers is left out: rank 1") != std::string::npos);
}

TEST_CASE("NCCL's sums are refused where every layout is to have the same bits") {
  for (const std::string path : {"nccl", "nccl-all"}) {
    for (const auto& layout : {std::vector<int>{2}, std::vector<int>{3, 3}}) {
      CAPTURE(path);
      Settings settings = test::by(path);
      settings.reproducible = true;
      const test::FakeGpus gpus(test::size_of_job(layout));
      const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& communicator) {
        const Device mine = gpu(communicator.rank());
        auto kv = KVStore::create(communicator);
        kv.init(1, Tensor::zeros({4}, DType::float32, mine));
        kv.push(1, Tensor::ones({4}, DType::float32, mine));
      });
      CHECK(test::all_say(outcomes, ErrorCode::invalid_argument,
                          "TUTTI_REPRODUCIBLE=1 with TUTTI_GPU_PATH=" + path +
                              ": NCCL adds in an order of its own"));
    }
  }
}

TEST_CASE("sums in registered memory are right in every layout, also where keys come and go") {
  for (const auto& layout : kSmallLayouts) {
    Settings settings = test::by("nccl");
    settings.nccl_windows = true;
    const int ranks = test::size_of_job(layout);
    const test::FakeGpus gpus(ranks, 7);
    const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      auto kv = KVStore::create(communicator);
      const std::vector<std::int64_t> counts = {7, 200'003, 300'001, 600'007};
      for (std::size_t i = 0; i < counts.size(); ++i) {
        kv.init(static_cast<int>(i), Tensor::zeros({counts[i]}, DType::float32, mine));
      }
      for (const std::size_t last : {0u, 0u, 1u, 1u, 3u, 3u, 2u, 0u}) {
        std::vector<Key> keys;
        std::vector<Tensor> values;
        for (std::size_t i = 0; i <= last; ++i) {
          keys.emplace_back(static_cast<int>(i));
          values.push_back(ramp(counts[i], DType::float32, communicator.rank(), mine));
        }
        kv.push(keys, values);
        for (std::size_t i = 0; i <= last; ++i) {
          const auto sums = pulled<float>(kv, static_cast<int>(i), counts[i]);
          const auto expected = static_cast<float>(ranks * 6 + ranks * (ranks - 1) / 2);
          test::require_equal(sums[6], expected, "key " + std::to_string(i));
        }
      }
    });
    // Layouts whose nodes differ have no sums by NCCL.
    if (layout == std::vector{1, 2}) {
      CHECK(test::all_say(outcomes, ErrorCode::invalid_argument, "nodes of 1 and of 2 ranks"));
    } else {
      CHECK(test::all_returned(outcomes));
    }
  }
}
