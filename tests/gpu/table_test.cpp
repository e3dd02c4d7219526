// SPDX-License-Identifier: Apache-2.0
// What is sent to a device, and when; seen on the CPU that plays one.
#include <doctest/doctest.h>

#include "runtime/gpu/kernels/staging.hpp"
#include "tests/gpu/host_rig.hpp"

using test::DeviceTensor;
using tutti::DType;
using tutti::Tensor;
using tutti::UpdateStep;
using tutti::gpus::TensorRow;

namespace {

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

TEST_CASE("an event that cannot be made leaves no piece of pinned memory without one") {
  test::HostWork work;
  test::HostMachine machine(&work);
  tutti::gpus::kernels::Staging<test::HostMachine> staging(machine);
  std::vector<std::byte> from(100, std::byte{7});
  std::vector<std::byte> to(100);
  work.events_left = 0;
  CHECK_THROWS_AS(staging.send(nullptr, to.data(), from.data(), 100), std::bad_alloc);
  work.events_left = -1;
  for (int i = 0; i < 3; ++i) staging.send(nullptr, to.data(), from.data(), 100);
  work.finish();
  CHECK(to == from);
}

TEST_CASE("rows and formulas that are as they were are not sent again, and nothing is allocated") {
  test::HostWork work;
  const auto rig = test::make_host_rig(work);
  auto& kernels = rig->kernels();
  Rows all(*rig, 1000);
  const auto sgd = tutti::optimizer::create("sgd");
  const auto table = kernels.make_table();
  const auto update = [&] {
    const std::size_t copies = work.num_copies;
    kernels.update(nullptr, *table, all.rows, *sgd, all.steps, nullptr);
    work.finish();
    return work.num_copies - copies;
  };
  CHECK(update() == 4);  // rows, tiles, the step of each row, formulas
  const std::size_t allocations = work.num_allocations;
  const std::size_t launches = work.num_launches;
  CHECK(update() == 0);
  CHECK(work.num_launches == launches + 1);
  for (UpdateStep& step : all.steps) step.count = 2;  // sgd's formula does not depend on it
  CHECK(update() == 0);
  for (UpdateStep& step : all.steps) step.learning_rate = 0.25;
  CHECK(update() == 1);  // one formula for all rows
  all.steps[7].learning_rate = 0.125;
  CHECK(update() == 2);
  all.rows[999].inputs[0] = all.gradient.data();
  CHECK(update() == 2);
  CHECK(update() == 0);
  CHECK(work.num_allocations == allocations);
}

TEST_CASE("calls that are enqueued before the first has run see the rows of their own call") {
  test::HostWork work;
  const auto rig = test::make_host_rig(work);
  Rows all(*rig, 600);
  const auto sgd = tutti::optimizer::create("sgd");
  const auto table = rig->kernels().make_table();
  for (int call = 0; call < 8; ++call) {
    for (std::size_t i = 0; i < all.steps.size(); ++i) {
      all.steps[i].learning_rate = call < 4 ? 1 << call : (i % 2 == 0 ? 1 : 2);
    }
    std::swap(all.rows[0], all.rows[static_cast<std::size_t>(call) + 1]);
    rig->kernels().update(nullptr, *table, all.rows, *sgd, all.steps, nullptr);
  }
  const Tensor weight = all.weight.read();
  double sum = 0;
  for (const float value : weight.values<float>()) sum += value;
  CHECK(sum == -600.0 * 15 - 4 * 900);
}

TEST_CASE("a table serves sums and updates in turn, with more rows or fewer") {
  test::HostWork work;
  const auto rig = test::make_host_rig(work);
  Rows all(*rig, 100);
  const auto sgd = tutti::optimizer::create("sgd,learning_rate=1");
  const auto table = rig->kernels().make_table();
  for (const std::size_t count : {100, 3, 50, 0, 100}) {
    const auto rows = std::span(all.rows).first(count);
    const auto steps = std::span(all.steps).first(count);
    rig->kernels().sum(nullptr, *table, rows);  // the weight is the gradient: 1
    rig->kernels().update(nullptr, *table, rows, *sgd, steps, nullptr);
    const Tensor weight = all.weight.read();
    for (std::size_t i = 0; i < count; ++i) CHECK(weight.values<float>()[i] == 0.5f);
  }
}

TEST_CASE("16-bit rows that were summed are cut anew for an update, which computes in float32") {
  test::HostWork work;
  const auto rig = test::make_host_rig(work);
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
  rig->kernels().update(nullptr, *table, std::span(&row, 1), *sgd, std::span(&step, 1), nullptr);
  CHECK(test::same_bytes(weight.read(), Tensor::full({3000}, -1, DType::bfloat16)));
}
