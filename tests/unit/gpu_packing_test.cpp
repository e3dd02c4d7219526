// SPDX-License-Identifier: Apache-2.0
// Compression of keys on fake GPUs by the GPUs: the cost of a push, and keys with many values.
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/gpu_jobs.hpp"

using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

TEST_CASE("a key of more values than a launch sums is packed on its GPU") {
  constexpr int kValues = 11;
  constexpr std::int64_t kCount = 1'021;
  const test::FakeGpus gpus(1);
  for (const char* compression : {"2bit,threshold=4", "fp16"}) {
    std::vector<float> pulled[2];
    for (const Device home : {cpu(), gpu(0)}) {
      auto kv = KVStore::create(home == cpu() ? "local" : "device");
      kv.init(3, Tensor::zeros({kCount}, DType::float32, home));
      kv.set_optimizer(tutti::optimizer::adam({}));
      kv.set_gradient_compression(compression);
      std::vector<Tensor> values;  // their sums are exact in any order
      for (int i = 0; i < kValues; ++i) {
        values.push_back(test::ramp(kCount, DType::float32, i - 8, home));
      }
      for (int step = 0; step < 3; ++step) kv.push(std::vector<Key>(kValues, 3), values);
      pulled[home == cpu() ? 0 : 1] = test::pulled<float>(kv, 3, kCount);
    }
    CHECK(pulled[0] == pulled[1]);
  }
}

namespace {

/// The most that a push of keys on one GPU may cost.
struct CompressedCost {
  const char* compression;
  int launches;
  std::size_t bits_to_host;  ///< bits for each element
};

/// The compressions of the last rows are made by the host, which gets whole gradients.
constexpr CompressedCost kCompressedCosts[] = {
    {"2bit,threshold=0.5", 3, 2}, {"1bit,threshold=0.5", 3, 1}, {"fp16", 2, 16}, {"bf16", 2, 16},
    {"topk,ratio=0.1", 2, 32},
};

}  // namespace

TEST_CASE("packed bytes alone come to the host, by one launch for all keys of a GPU") {
  constexpr std::int64_t kCounts[] = {1'021, 100'000, 8};
  for (const CompressedCost& cost : kCompressedCosts) {
    CAPTURE(cost.compression);
    const test::FakeGpus gpus(1);
    auto kv = KVStore::create("device");
    kv.set_optimizer(tutti::optimizer::adam({}));
    kv.set_gradient_compression(cost.compression);
    std::vector<Key> keys;
    std::vector<Tensor> values;
    std::size_t elements = 0;
    for (const std::int64_t count : kCounts) {
      keys.emplace_back(static_cast<int>(keys.size()));
      values.push_back(test::random_numbers_on(gpu(0), count, static_cast<unsigned>(count)));
      elements += static_cast<std::size_t>(count);
    }
    kv.init(keys, values);
    for (int step = 0; step < 3; ++step) {
      const int launches = gpus->launches();
      const std::size_t bytes = gpus->bytes_to_host();
      kv.push(keys, values);
      // The first push makes states and residuals.
      if (step > 0) CHECK(gpus->launches() - launches == cost.launches);
      const std::size_t found = gpus->bytes_to_host() - bytes;
      const std::size_t expected = elements * cost.bits_to_host / 8;
      CHECK(found >= expected);
      CHECK(found < expected + 2'000);  // keys end with whole bytes; a bucket's begin at 256
    }
  }
}

TEST_CASE("a compressed push of the same keys allocates nothing from the device") {
  constexpr std::int64_t kCount = 600'007;  // more than the pool cuts from slabs, also when packed
  for (const char* compression : {"2bit,threshold=0.5", "fp16", "topk,ratio=0.01"}) {
    CAPTURE(compression);
    const test::FakeGpus gpus(1);
    auto there = KVStore::create("device");
    auto here = KVStore::create("local");
    Tensor value = test::random_numbers_on(gpu(0), kCount, 1);
    Tensor host_value = test::random_numbers_on(cpu(), kCount, 1);
    for (KVStore* kv : {&there, &here}) {
      kv->init(3, test::random_numbers_on(kv == &there ? gpu(0) : cpu(), kCount, 2));
      kv->set_optimizer(tutti::optimizer::adam({}));
      kv->set_gradient_compression(compression);
    }
    there.push(3, value);
    here.push(3, host_value);
    const std::size_t before = tutti::gpus::find_gpus()->allocations();
    for (int step = 0; step < 5; ++step) {
      value.view() *= 1.5;
      host_value.view() *= 1.5;
      there.push(3, value);
      here.push(3, host_value);
      CHECK(test::pulled<float>(there, 3, kCount) == test::pulled<float>(here, 3, kCount));
    }
    CHECK(tutti::gpus::find_gpus()->allocations() == before);
  }
}
