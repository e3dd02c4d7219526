// SPDX-License-Identifier: Apache-2.0
// Row-sparse keys on fake GPUs: replicas that differ, pushes that are refused, and GPUs that fail.
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/unit/gpu_row_jobs.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::RowSparse;
using tutti::Tensor;

namespace {

constexpr std::int64_t kTableRows = 50'000;

RowSparse one_row(std::int64_t id, double value, Device device) {
  return RowSparse::from({id}, Tensor::full({1, 4}, value, DType::float32, device));
}

/// Doubles a row of this rank's own table.
void spoil_row(const KVStore& kv, std::int64_t row) {
  const tutti::ConstTensorView stored = kv.view(1);
  tutti::TensorView(const_cast<std::byte*>(stored.bytes()) + row * 4 * sizeof(float), {4},
                    DType::float32, stored.device()) *= 2;
}

float element_of(const KVStore& kv, std::int64_t row) {
  return kv.view(1).value<float>(static_cast<std::size_t>(4 * row));
}

tutti::Settings comparing(tutti::Verify verify) {
  tutti::Settings settings = test::by("auto");
  settings.verify = verify;
  return settings;
}

/// A store with a table on each rank's own GPU, to which all have pushed once.
KVStore store_with_table(const Communicator& world, const std::string& rule) {
  auto kv = KVStore::create(world);
  const Device mine = gpu(world.rank());
  test::set_row_rule(kv, rule);
  kv.init_row_sparse(1, Tensor::zeros({kTableRows, 4}, DType::float32, mine));
  kv.push(1, one_row(9, 1, mine));
  return kv;
}

/// Takes all memory of a device in blocks of 2 MiB.
std::vector<Tensor> all_memory_of(Device device) {
  std::vector<Tensor> taken;
  try {
    for (;;) taken.push_back(Tensor::empty({std::int64_t{2} << 20}, DType::uint8, device));
  } catch (const tutti::Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  return taken;
}

/// Requires an error that all ranks throw, after which nothing has changed.
void require_refusal(ErrorCode code, const std::vector<std::string>& words,
                     const std::function<void()>& call) {
  try {
    call();
  } catch (const tutti::Error& error) {
    const std::string text = error.what();
    for (const std::string& word : words) {
      if (text.find(word) == std::string::npos) {
        test::fail_here("expected \"" + word + "\" in: " + text);
      }
    }
    if (error.code() != code || !error.recoverable()) throw;
    return;
  }
  test::fail_here("expected an error, got none");
}

}  // namespace

TEST_CASE("tables and states on GPUs that differ are found by verify, and healed") {
  const test::FakeGpus gpus(3, 5);
  const auto outcomes = test::as_ranks({3}, test::by("auto"), [&](Communicator& world) {
    auto kv = store_with_table(world, "sgd,learning_rate=1,momentum=0.5");
    test::require_equal(kv.verify().healed, std::uint64_t{0}, "healed");
    if (world.rank() == 1) spoil_row(kv, 9);
    const auto result = kv.verify();
    test::require_equal(result.healed, std::uint64_t{1}, "healed");
    test::require_equal(result.bytes, std::uint64_t{2 * 16 * kTableRows}, "bytes compared");
    test::require_equal(element_of(kv, 9), -3.0f, "row 9");
    test::require_equal(kv.view(1).device() == gpu(world.rank()), true, "still on the GPU");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a row on a GPU that differs is healed by the push after the one that changed it") {
  for (const auto& layout : test::kSmallLayouts) {
    const test::FakeGpus gpus(test::size_of_job(layout), 5);
    const auto outcomes =
        test::as_ranks(layout, comparing(tutti::Verify::full), [&](Communicator& world) {
          auto kv = store_with_table(world, "sgd,learning_rate=1,momentum=0.5");
          const Device mine = gpu(world.rank());
          if (world.rank() == 1) spoil_row(kv, 9);
          kv.push(1, one_row(9, 1, mine));
          kv.push(1, one_row(3, 1, mine));
          const float expected = -2.5f * static_cast<float>(world.size());  // 1 + (0.5 + 1)
          test::require_equal(element_of(kv, 9), expected, "row 9");
          test::require_equal(kv.verify().healed_since_creation, std::uint64_t{1}, "healed");
        });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("two ranks whose rows on GPUs differ throw, in every way to compare") {
  for (const auto verify : {tutti::Verify::full, tutti::Verify::sampled}) {
    const test::FakeGpus gpus(2, 5);
    const auto outcomes = test::as_ranks({2}, comparing(verify), [&](Communicator& world) {
      auto kv = store_with_table(world, "sgd,learning_rate=1");
      const Device mine = gpu(world.rank());
      if (world.rank() == 1) spoil_row(kv, 9);
      kv.push(1, one_row(9, 1, mine));
      require_refusal(ErrorCode::divergence,
                      {"replicas are not equal: key 1 (50000, 4) float32, weights, chunk 0"},
                      [&] { kv.push(1, one_row(3, 1, mine)); });
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a push that replaces rows on GPUs that differed says so, and heals nothing") {
  const test::FakeGpus gpus(2, 5);
  tutti::Settings settings = comparing(tutti::Verify::full);
  settings.log = tutti::LogLevel::warning;
  const std::string said = test::written_by([&] {
    const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& world) {
      auto kv = store_with_table(world, "");
      const Device mine = gpu(world.rank());
      if (world.rank() == 1) spoil_row(kv, 9);
      kv.push(1, one_row(9, 2, mine));
      kv.push(1, one_row(3, 2, mine));
      test::require_equal(element_of(kv, 9), 4.0f, "row 9");
    });
    CHECK(test::all_returned(outcomes));
  });
  CHECK(said.find("rows differed between ranks before the last push of rows of key 1 (50000, 4) "
                  "float32 on a GPU, which has made them equal") != std::string::npos);
}

TEST_CASE("equal tables raise no alarm, whichever GPUs the ranks have them on") {
  for (const auto verify : {tutti::Verify::full, tutti::Verify::sampled}) {
    const test::FakeGpus gpus(3, 5);
    tutti::Settings settings = comparing(verify);
    settings.log = tutti::LogLevel::warning;
    const std::string said = test::written_by([&] {
      const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& world) {
        const std::vector<Device> homes = {gpu(world.rank()), gpu((2 * world.rank() + 1) % 3)};
        test::RowRig rig(KVStore::create(world), homes, DType::float32, 3, "adam");
        for (unsigned step = 0; step < test::RowRig::kSteps; ++step) rig.push(step);
        test::require_equal(rig.kv.verify().healed_since_creation, std::uint64_t{0}, "healed");
      });
      CHECK(test::all_returned(outcomes));
    });
    CHECK(said.empty());
  }
}

TEST_CASE("what a row-sparse key on a GPU cannot do is refused, and changes nothing") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  const auto expect = [&](const std::string& words, const std::function<void()>& call) {
    test::expect_error(call, test::kInvalid, {words});
  };
  expect("a row-sparse key is a table, of one dimension at least; got a scalar",
         [&] { kv.init_row_sparse(1, Tensor::zeros(tutti::Shape{}, DType::float32, gpu(0))); });
  expect("tensor: gpu(3) is not here; this process has gpu(0)", [&] {
    kv.init_row_sparse(1, {3, 4}, DType::float32, gpu(3));
  });
  auto local = KVStore::create("local");
  expect("key 1 (3, 4) float32: a local store keeps its keys on the cpu; got a table on gpu(0)",
         [&] {
           local.init_row_sparse(1, {3, 4}, DType::float32, gpu(0));
         });
  kv.init_row_sparse(1, Tensor::ones({3, 4}, DType::float32, gpu(0)));
  expect("key 1 (3, 4) float32 is row-sparse; push it a RowSparse value", [&] {
    kv.push(1, Tensor::ones({3, 4}, DType::float32, gpu(0)));
  });
  expect("row id 3 at position 0: expected 0 to 2", [&] { kv.push(1, one_row(3, 1, gpu(0))); });
  expect("rows have shape (1, 3), expected (1, 4)", [&] {
    kv.push(1, RowSparse::from({1}, Tensor::ones({1, 3}, DType::float32, gpu(0))));
  });
  std::vector<float> nowhere(4);
  const std::vector<std::int64_t> ids = {1};
  expect("key 1: gpu(3) is not here; this process has gpu(0)", [&] {
    kv.push(1, row_sparse(tutti::view(ids.data(), {1}),
                          tutti::ConstTensorView(nowhere.data(), {1, 4}, DType::float32, gpu(3))));
  });
  class RowsOfItsOwn final : public tutti::Optimizer {
   public:
    RowsOfItsOwn() : Optimizer("custom", {}) {}
    [[nodiscard]] int num_states() const override { return 0; }
    [[nodiscard]] bool updates_rows() const override { return true; }
    void update(const tutti::UpdateStep&, const tutti::ElementRange<float>&) const override {}
    void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}
  };
  kv.set_optimizer(std::make_shared<RowsOfItsOwn>());
  expect(
      "key 1 (3, 4) float32: optimizer custom has no kernels for a GPU, and the key is on "
      "gpu(0); init it from a tensor on the cpu",
      [&] { kv.push(1, one_row(1, 1, gpu(0))); });
  kv.set_optimizer(tutti::optimizer::create("lamb"));
  expect("lamb does not update single rows", [&] { kv.push(1, one_row(1, 1, gpu(0))); });
  CHECK(kv.view(1).to_vector<float>() == std::vector<float>(12, 1));
}

TEST_CASE("a table on a GPU here and on the cpu there is a mismatch") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    require_refusal(ErrorCode::mismatch,
                    {"init_row_sparse of key 1 (3, 4) float32 on a GPU",
                     "init_row_sparse of key 1 (3, 4) float32;"},
                    [&] {
                      const Device home = world.rank() == 0 ? gpu(0) : cpu();
                      kv.init_row_sparse(1, Tensor::zeros({3, 4}, DType::float32, home));
                    });
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a GPU without memory for a table, states or rows refuses on all ranks, and goes on") {
  constexpr std::int64_t kRows = 400'000;
  for (const auto& layout : test::kSmallLayouts) {
    if (test::kFewCases && layout.size() > 1) continue;
    const test::FakeGpus gpus(test::size_of_job(layout), 3, std::size_t{40} << 20);
    const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
      auto kv = KVStore::create(world);
      const Device mine = gpu(world.rank());
      std::vector<std::int64_t> ids(kRows);
      std::iota(ids.begin(), ids.end(), 0);
      const Tensor rows = Tensor::ones({kRows, 4});
      const auto push = [&](std::int64_t count) {
        kv.push(1, row_sparse(tutti::view(ids.data(), {count}),
                              tutti::ConstTensorView(rows.bytes(), {count, 4}, DType::float32)));
      };
      const std::string words = "gpu(1) (fake GPU) has no memory for shape ";
      const auto without_memory = [&](const std::string& shape, const std::function<void()>& call) {
        const auto taken = world.rank() == 1 ? all_memory_of(mine) : std::vector<Tensor>();
        require_refusal(ErrorCode::out_of_memory, {"rank 1 (host", words + shape}, call);
      };
      const Tensor zeros = Tensor::zeros({kRows, 4}, DType::float32, mine);
      without_memory("(400000, 4) of float32", [&] { kv.init_row_sparse(1, zeros); });
      kv.init_row_sparse(1, zeros);
      kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=1,momentum=0.5"));
      without_memory("(400000, 4) of float32", [&] { push(2); });
      push(2);
      without_memory("(8000000) of uint8", [&] { push(kRows); });
      push(kRows);
      const float ranks = static_cast<float>(world.size());
      test::require_equal(element_of(kv, 1), -2.5f * ranks, "row 1");
      test::require_equal(element_of(kv, kRows - 1), -ranks, "the last row");
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a GPU that breaks down in a push of rows ends it on every rank at once") {
  for (const auto& layout : test::kSmallLayouts) {
    // The error comes before the ranks agree, where rows are fetched, or after the sum, where the
    // table is updated.
    for (const bool is_early : {true, false}) {
      tutti::Settings settings = comparing(is_early ? tutti::Verify::sampled : tutti::Verify::off);
      // Beyond the test's own limit, so that it has no effect.
      settings.timeout = std::chrono::hours(1);
      const test::FakeGpus gpus(test::size_of_job(layout), 5);
      const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& world) {
        auto kv = store_with_table(world, "sgd");
        kv.barrier();
        if (world.rank() == 1) gpus->break_down(1);
        kv.push(1, one_row(9, 1, cpu()));
        kv.barrier();
      });
      CHECK(test::all_say(outcomes, ErrorCode::communication, "rank 1 (host"));
      CHECK(test::all_say(outcomes, ErrorCode::communication, "gpu(1) is broken"));
    }
  }
}

TEST_CASE("a GPU that hangs ends a push of its rows on all ranks") {
  test::check_that_a_hang_ends_the_push([](const Communicator& world) {
    auto kv = std::make_shared<KVStore>(store_with_table(world, "sgd"));
    auto value = std::make_shared<RowSparse>(one_row(9, 1, gpu(world.rank())));
    return [kv, value] { kv->push(1, *value); };
  });
}

TEST_CASE("an updater of rows on a GPU that throws fails the store on all ranks") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& world) {
    auto kv = store_with_table(world, "");
    kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {},
                   [&](const Key&, const tutti::RowSparseView&, tutti::TensorView) {
                     if (world.rank() == 1) throw std::runtime_error("no such row");
                   });
    kv.push(1, one_row(9, 1, gpu(world.rank())));
    kv.barrier();
  });
  CHECK(test::all_say(outcomes, ErrorCode::user_code, "the updater of key 1 threw: no such row"));
}
