// SPDX-License-Identifier: Apache-2.0
// The choice of the way in which values on GPUs are summed over the ranks, with
// TUTTI_GPU_PATH=auto: threads with a fake GPU each.
#include <chrono>
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

// Sums by kernels have the bits of the host's sums; memory that they cannot reach is no error of
// the store.
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
          test::require_equal(test::pulled<float>(kv, 1, 4)[0], 3.0f, "key 1[0]");
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

TEST_CASE("ranks join NCCL once, for all stores and communicators of theirs, whichever live") {
  for (const auto& layout : {std::vector{2}, std::vector{2, 2}}) {
    const int ranks = test::size_of_job(layout);
    const test::FakeGpus gpus(ranks);
    const auto outcomes = test::as_ranks(layout, test::by("nccl"), [&](Communicator& job) {
      const Device mine = gpu(job.rank());
      const Tensor value = Tensor::ones({1'003}, DType::float32, mine);
      for (int i = 0; i < 3; ++i) {
        auto first = KVStore::create(job);
        auto second = KVStore::create(job.split(0, job.rank()));
        for (KVStore* kv : {&first, &second}) {
          kv->init(1, Tensor::zeros({1'003}, DType::float32, mine));
          kv->push(1, value);
        }
        Tensor sum = Tensor::ones({1'003}, DType::float32, mine);
        job.allreduce(sum);
        for (KVStore* kv : {&first, &second}) {
          test::require_equal(test::pulled<float>(*kv, 1, 1'003)[1'002], static_cast<float>(ranks),
                              "1");
        }
        test::require_equal(test::on_host(sum)[7], static_cast<float>(ranks), "the sum's [7]");
      }
      Communicator backwards = job.split(0, -job.rank());  // other ranks, in NCCL's eyes
      Tensor sum = Tensor::ones({1'003}, DType::float32, mine);
      backwards.allreduce(sum);
      test::require_equal(test::on_host(sum)[7], static_cast<float>(ranks), "the sum's [7]");
    });
    CHECK(test::all_returned(outcomes));
    CHECK(gpus->joins() == 2 * ranks);
  }
}

// --- several nodes -------------------------------------------------------------------------------

namespace {

struct Job {
  test::Outcomes outcomes;
  std::string said;
};

/// Pushes over these nodes, by a way of the library's choice.
Job push_over(const std::vector<int>& layout) {
  Settings settings = test::by("auto");
  settings.log = tutti::LogLevel::info;
  Job job;
  job.said = test::written_by([&] {
    job.outcomes = test::as_ranks(layout, settings, [&](Communicator& communicator) {
      const Device mine = gpu(communicator.rank());
      auto kv = KVStore::create(communicator);
      kv.init(1, Tensor::zeros({1'003}, DType::float32, mine));
      for (int i = 0; i < 2; ++i) kv.push(1, Tensor::ones({1'003}, DType::float32, mine));
      test::require_equal(test::pulled<float>(kv, 1, 1'003)[1'002],
                          static_cast<float>(communicator.size()), "key 1[1002]");
    });
  });
  return job;
}

}  // namespace

TEST_CASE("by itself, a job of several nodes sums by the faster way, which its ranks measure") {
  const std::chrono::milliseconds delay(300);
  for (const auto& layout : {std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 2}}) {
    for (const bool is_nccl : {true, false}) {
      CAPTURE(layout.size());
      CAPTURE(is_nccl);
      const test::FakeGpus gpus(test::size_of_job(layout));
      is_nccl ? gpus->delay_host_copies(delay) : gpus->delay_sums(delay);
      const Job job = push_over(layout);
      CAPTURE(job.said);
      CHECK(test::all_returned(job.outcomes));
      CHECK(job.said.find("ms by NCCL over all nodes and ") != std::string::npos);
      const bool says = job.said.find("summed by fake NCCL over all nodes") != std::string::npos;
      CHECK(says == is_nccl);
    }
  }
}

TEST_CASE(
    "where NCCL cannot go between nodes, a job of several nodes sums without it, and says so") {
  for (const bool joins : {true, false}) {
    CAPTURE(joins);
    const test::FakeGpus gpus(2);
    joins ? gpus->fail_collectives("an InfiniBand port is down") : gpus->refuse_to_join(2);
    const Job job = push_over({1, 1});
    CAPTURE(job.said);
    CHECK(test::all_returned(job.outcomes));
    const char* const why = joins ? "NCCL does not sum over all nodes: rank 0 "
                                  : "NCCL does not connect all nodes: rank 0 ";
    CHECK(job.said.find(why) != std::string::npos);
    CHECK(job.said.find(joins ? "an InfiniBand port is down" : "no way to the other node") !=
          std::string::npos);
    CHECK(job.said.find("summed by way of the host") != std::string::npos);
  }
}
