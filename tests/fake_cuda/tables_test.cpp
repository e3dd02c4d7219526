// SPDX-License-Identifier: Apache-2.0
// The tables that kernels read: what of them is sent to a device, and when.
#include <algorithm>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <vector>

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/gpu/rig.hpp"

using test::DeviceTensor;
using tutti::DType;
using tutti::Tensor;
using tutti::UpdateStep;
using tutti::gpus::TensorRow;

namespace {

/// What the library has asked the fake runtime for so far.
struct Asked {
  int launches = fake_cuda::calls("cudaLaunchKernelEx");
  int copies = fake_cuda::calls("cudaMemcpyAsync");
  std::size_t copied_bytes = fake_cuda::copied_bytes();
  int allocations = fake_cuda::calls("cudaMalloc") + fake_cuda::calls("cudaHostAlloc");
};

void finish() { REQUIRE(cudaDeviceSynchronize() == cudaSuccess); }

/// Rows of one element each over two tensors: a gradient and a weight.
struct Rows {
  Rows(test::Rig& rig, std::int64_t count)
      : gradient(rig, Tensor::ones({count})),
        weight(rig, Tensor::zeros({count})),
        rows(static_cast<std::size_t>(count)),
        steps(rows.size(), UpdateStep{1, 0.5, 0.0, 0}) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].inputs[0] = gradient.data() + i * sizeof(float);
      rows[i].output = weight.data() + i * sizeof(float);
      rows[i].count = 1;
      steps[i].key = i;
    }
  }
  DeviceTensor gradient;
  DeviceTensor weight;
  std::vector<TensorRow> rows;
  std::vector<UpdateStep> steps;
};

}  // namespace

TEST_CASE("rows and formulas that are as they were are not sent again, and nothing is allocated") {
  const auto rig = test::make_rig();
  auto& kernels = rig->kernels();
  Rows all(*rig, 1000);
  const auto sgd = tutti::optimizer::create("sgd");
  const auto table = kernels.make_table();
  const auto update = [&] {
    const Asked before;
    kernels.update(nullptr, *table, all.rows, *sgd, all.steps);
    finish();
    return Asked().copies - before.copies;
  };
  CHECK(update() == 3);  // rows, tiles, inputs; the formula is the kernel's parameter
  const Asked before;
  CHECK(update() == 0);
  CHECK(Asked().launches == before.launches + 1);
  for (UpdateStep& step : all.steps) step.count = 2;  // sgd's formula does not depend on it
  CHECK(update() == 0);
  for (UpdateStep& step : all.steps) step.learning_rate = 0.25;
  CHECK(update() == 0);  // one formula for all rows
  all.steps[7].learning_rate = 0.125;
  CHECK(update() == 1);  // the step of each row
  const int allocations = Asked().allocations;
  all.rows[999].inputs[0] = all.gradient.data();
  CHECK(update() == 1);
  CHECK(update() == 0);
  CHECK(Asked().allocations == allocations);
}

TEST_CASE("calls that are enqueued before the first has run see the rows of their own call") {
  const auto rig = test::make_rig();
  Rows all(*rig, 600);
  const auto sgd = tutti::optimizer::create("sgd");
  const auto table = rig->kernels().make_table();
  fake_cuda::hang(0);
  for (int call = 0; call < 8; ++call) {
    for (std::size_t i = 0; i < all.steps.size(); ++i) {
      all.steps[i].learning_rate = call < 4 ? 1 << call : (i % 2 == 0 ? 1 : 2);
    }
    std::swap(all.rows[0], all.rows[static_cast<std::size_t>(call) + 1]);
    rig->kernels().update(nullptr, *table, all.rows, *sgd, all.steps);
  }
  fake_cuda::go_on(0);
  const Tensor weight = all.weight.read();
  double sum = 0;
  for (const float value : weight.values<float>()) sum += value;
  CHECK(sum == -600.0 * 15 - 4 * 900);
}

TEST_CASE("a table serves sums and updates in turn, with more rows or fewer") {
  const auto rig = test::make_rig();
  Rows all(*rig, 100);
  const auto sgd = tutti::optimizer::create("sgd,learning_rate=1");
  const auto table = rig->kernels().make_table();
  for (const std::size_t count : {100, 3, 50, 0, 100}) {
    const auto rows = std::span(all.rows).first(count);
    const auto steps = std::span(all.steps).first(count);
    rig->kernels().sum(nullptr, *table, rows);  // the weight is the gradient: 1
    rig->kernels().update(nullptr, *table, rows, *sgd, steps);
    const Tensor weight = all.weight.read();
    for (std::size_t i = 0; i < count; ++i) CHECK(weight.values<float>()[i] == 0.5f);
  }
}

TEST_CASE("16-bit rows that were summed are cut anew for an update, which computes in float32") {
  const auto rig = test::make_rig();
  const DeviceTensor gradient(*rig, Tensor::ones({3000}, DType::bfloat16));
  const DeviceTensor weight(*rig, Tensor::zeros({3000}, DType::bfloat16));
  const DeviceTensor exact(*rig, Tensor::zeros({3000}));
  TensorRow row;
  row.inputs[0] = gradient.data();
  row.output = weight.data();
  row.states[0] = exact.data();
  row.count = 3000;
  row.dtype = DType::bfloat16;
  const auto sgd = tutti::optimizer::create("sgd,multi_precision=true");
  const UpdateStep step{1, 1.0, 0.0, 0};
  const auto table = rig->kernels().make_table();
  rig->kernels().sum(nullptr, *table, std::span(&row, 1));
  CHECK(test::same_bytes(weight.read(), Tensor::ones({3000}, DType::bfloat16)));
  rig->kernels().update(nullptr, *table, std::span(&row, 1), *sgd, std::span(&step, 1));
  CHECK(test::same_bytes(weight.read(), Tensor::full({3000}, -1, DType::bfloat16)));
}

TEST_CASE("many different steps have their formulas in the device's memory, a few have not") {
  const auto rig = test::make_rig();
  Rows all(*rig, 100);
  const auto sgd = tutti::optimizer::create("sgd");
  const auto table = rig->kernels().make_table();
  double each = 0;
  for (const std::size_t different : {1, 4, 5, 100, 4, 1}) {
    CAPTURE(different);
    const Asked before;
    for (std::size_t i = 0; i < all.steps.size(); ++i) {
      all.steps[i].learning_rate = static_cast<double>(1 + i % different);
    }
    rig->kernels().update(nullptr, *table, all.rows, *sgd, all.steps);
    finish();
    if (each > 0) {
      CHECK(Asked().copies == before.copies + (different > 4 ? 2 : different > 1 ? 1 : 0));
    }
    const Tensor weight = all.weight.read();
    each += static_cast<double>(1 + 99 % different);
    CHECK(weight.values<float>()[99] == -each);
  }
}

TEST_CASE("rows of different numbers of inputs find their own, at any address") {
  const auto rig = test::make_rig();
  auto& kernels = rig->kernels();
  const auto table = kernels.make_table();
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::uint8}) {
    const DeviceTensor values(*rig, Tensor::ones({5000}, dtype));
    std::vector<std::unique_ptr<DeviceTensor>> outputs;
    std::vector<TensorRow> rows;
    for (int i = 0; i < 9; ++i) {
      outputs.push_back(std::make_unique<DeviceTensor>(*rig, Tensor::zeros({4097}, dtype)));
      rows.push_back({.num_inputs = 1 + i % 8,
                      .output = outputs.back()->data(),
                      .count = 4097,
                      .dtype = dtype});
    }
    for (const std::size_t offset : {0, 1, 3, 16, 17}) {
      CAPTURE(offset);
      const Asked before;
      for (TensorRow& row : rows) {
        for (int k = 0; k < row.num_inputs; ++k) {
          row.inputs[k] = values.data() + (offset + k * 8) * tutti::size_of(dtype);
        }
      }
      kernels.sum(nullptr, *table, rows);
      if (offset > 0) CHECK(Asked().copies == before.copies + 1);
      for (int i = 0; i < 9; ++i) {
        const Tensor sums = outputs[i]->read();
        CHECK(test::same_bytes(sums, Tensor::full({4097}, 1 + i % 8, dtype)));
        CHECK(outputs[i]->is_guarded());
      }
    }
  }
}

TEST_CASE("new gradients in every step cost 10,000 keys an upload of 80,000 bytes and a launch") {
  const auto rig = test::make_rig();
  constexpr std::int64_t kKeys = 10'000;
  Rows all(*rig, kKeys);
  const DeviceTensor others(*rig, Tensor::ones({kKeys}));
  const auto adam = tutti::optimizer::create("adam");
  const std::vector<std::unique_ptr<DeviceTensor>> states = [&] {
    std::vector<std::unique_ptr<DeviceTensor>> made;
    for (int i = 0; i < 2; ++i) {
      made.push_back(std::make_unique<DeviceTensor>(*rig, Tensor::zeros({kKeys})));
    }
    return made;
  }();
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    for (std::size_t s = 0; s < 2; ++s) {
      all.rows[i].states[s] = states[s]->data() + i * sizeof(float);
    }
  }
  const auto table = rig->kernels().make_table();
  int allocations = 0;
  for (int step = 1; step <= 8; ++step) {
    const DeviceTensor& gradient = step % 2 == 0 ? all.gradient : others;
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
      all.rows[i].inputs[0] = gradient.data() + i * sizeof(float);
      all.steps[i].count = static_cast<std::uint64_t>(step);
    }
    fake_cuda::hang(0);  // the host is a few steps ahead
    const Asked before;
    rig->kernels().update(nullptr, *table, all.rows, *adam, all.steps);
    if (step == 1) continue;
    CHECK(Asked().launches == before.launches + 1);
    CHECK(Asked().copies == before.copies + 1);
    CHECK(Asked().copied_bytes == before.copied_bytes + kKeys * sizeof(void*));
    if (step % 4 == 0) {
      fake_cuda::go_on(0);
      finish();
    }
    if (step == 4) allocations = Asked().allocations;
  }
  CHECK(Asked().allocations == allocations);
}
