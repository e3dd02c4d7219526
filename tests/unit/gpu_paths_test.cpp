// SPDX-License-Identifier: Apache-2.0
// Sums over ranks in memory that NCCL's stand-in has registered: threads with a fake GPU each.
#include <doctest/doctest.h>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
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
