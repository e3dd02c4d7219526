// SPDX-License-Identifier: Apache-2.0
// Loss scaling and clipping by the global norm of keys on fake GPUs, with the bits of keys on the
// CPU.
#include <doctest/doctest.h>
#include <limits>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

namespace {

Tensor on(Device device, const Tensor& value) {
  Tensor tensor = Tensor::empty(value.shape(), value.dtype(), device);
  tensor.view().copy_from(value);
  return tensor;
}

constexpr std::int64_t kCounts[] = {1001, 1, 5000};

/// The types of keys 0, 1, ...
constexpr DType kTypes[] = {DType::float32, DType::float64, DType::bfloat16};

Tensor random(int key, std::uint64_t seed, int rank) {
  Tensor tensor = Tensor::empty({kCounts[key]}, kTypes[key]);
  const auto values =
      test::random_values(static_cast<std::size_t>(kCounts[key]),
                          static_cast<unsigned>(seed * 100 + static_cast<std::uint64_t>(key) * 10 +
                                                static_cast<std::uint64_t>(rank)));
  tensor.view().copy_from(Tensor::from(std::span<const float>(values)));
  return tensor;
}

void init(KVStore& kv, const std::vector<Device>& homes, const std::string& optimizer) {
  kv.set_optimizer(tutti::optimizer::create(optimizer));
  for (int key = 0; key < 3; ++key) kv.init(key, on(homes[key], random(key, 1, 0)));
}

void push(KVStore& kv, const std::vector<Device>& homes, std::uint64_t step, double bad = 0) {
  std::vector<Tensor> values;
  for (int key = 0; key < 3; ++key) {
    Tensor value = random(key, 2 + step, kv.rank());
    value.view() *= kv.loss_scale();
    if (bad != 0 && key == 1) value.fill(bad);
    values.push_back(on(homes[key], value));
  }
  kv.push({0, 1, 2}, values);
}

bool are_equal(const KVStore& left, const KVStore& right) {
  for (int key = 0; key < 3; ++key) {
    Tensor one = Tensor::zeros({kCounts[key]}, kTypes[key]);
    Tensor other = Tensor::zeros({kCounts[key]}, kTypes[key]);
    left.pull(key, one);
    right.pull(key, other);
    if (!std::equal(one.bytes(), one.bytes() + one.size_bytes(), other.bytes())) return false;
  }
  return left.gradient_scaling().norm == right.gradient_scaling().norm &&
         left.gradient_scaling().skipped == right.gradient_scaling().skipped &&
         left.loss_scale() == right.loss_scale();
}

constexpr const char* kOptimizers[] = {
    "adam,multi_precision=true,clip_global_norm=0.5",
    "sgd,momentum=0.9,multi_precision=true,loss_scale=dynamic,init_scale=64,growth_interval=2",
    "lamb,multi_precision=true,loss_scale=8,clip_global_norm=1,schedule=cosine,max_update=20"};

}  // namespace

TEST_CASE("keys on GPUs are scaled, clipped and skipped with the bits of keys on the cpu") {
  for (const char* optimizer : kOptimizers) {
    CAPTURE(optimizer);
    const test::FakeGpus gpus(2);
    auto there = KVStore::create("device");
    auto here = KVStore::create("local");
    const std::vector<Device> homes = {gpu(1), gpu(0), gpu(1)};
    const std::vector<Device> cpus(3, cpu());
    init(there, homes, optimizer);
    init(here, cpus, optimizer);
    for (std::uint64_t step = 0; step < 6; ++step) {
      const double bad = step == 0 || step == 3 ? std::numeric_limits<double>::infinity() : 0;
      push(there, homes, step, bad);
      push(here, cpus, step, bad);
      CHECK(there.gradient_scaling().was_skipped == (bad != 0));
      CHECK(are_equal(there, here));
    }
  }
}

TEST_CASE("a rank's gradient on a GPU that is not finite makes all ranks skip the push") {
  for (const char* path : {"auto", "host"}) {
    CAPTURE(path);
    const test::FakeGpus gpus(3);
    const auto outcomes = test::as_ranks({3}, test::by(path), [&](Communicator& world) {
      auto there = KVStore::create(world);
      auto here = KVStore::create(world);
      const std::vector<Device> homes(3, gpu(world.rank()));
      const std::vector<Device> cpus(3, cpu());
      init(there, homes, kOptimizers[1]);
      init(here, cpus, kOptimizers[1]);
      for (std::uint64_t step = 0; step < 4; ++step) {
        const bool is_bad = step == 1;
        const double bad =
            is_bad && world.rank() == 2 ? std::numeric_limits<double>::quiet_NaN() : 0;
        push(there, homes, step, bad);
        push(here, cpus, step, bad);
        test::require_equal(there.gradient_scaling().was_skipped, is_bad, "was skipped");
        test::require_equal(there.loss_scale(), here.loss_scale(), "the loss scale");
      }
      test::require_equal(there.gradient_scaling().skipped, std::uint64_t{1}, "skipped pushes");
      if (std::string_view(path) == "host") {
        test::require_equal(are_equal(there, here), true, "the bits of the cpu");
      }
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a checkpoint of keys on a GPU keeps the scale") {
  const test::FakeGpus gpus(1);
  const test::ScratchFolder folder;
  const std::vector<Device> homes(3, gpu(0));
  auto whole = KVStore::create("device");
  init(whole, homes, kOptimizers[1]);
  for (std::uint64_t step = 0; step < 3; ++step) {
    push(whole, homes, step, step == 1 ? std::numeric_limits<double>::infinity() : 0);
  }
  whole.save(folder.path() / "ckpt");
  auto resumed = KVStore::create("device");
  init(resumed, homes, kOptimizers[1]);
  resumed.load(folder.path() / "ckpt");
  CHECK(are_equal(whole, resumed));
  for (std::uint64_t step = 3; step < 6; ++step) {
    push(whole, homes, step);
    push(resumed, homes, step);
  }
  CHECK(are_equal(whole, resumed));
}

TEST_CASE("scaled pushes in their rhythm allocate nothing from the device") {
  const test::FakeGpus gpus(1);
  const std::vector<Device> homes(3, gpu(0));
  auto kv = KVStore::create("device");
  init(kv, homes, kOptimizers[0]);
  for (std::uint64_t step = 0; step < 2; ++step) push(kv, homes, step);
  const std::size_t before = tutti::gpus::find_gpus()->allocations();
  for (std::uint64_t step = 2; step < 5; ++step) push(kv, homes, step);
  CHECK(tutti::gpus::find_gpus()->allocations() == before);
}
