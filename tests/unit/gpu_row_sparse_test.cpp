// SPDX-License-Identifier: Apache-2.0
// Row-sparse keys on fake GPUs, with the bits of keys on the CPU.
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/c/row_sparse.h"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/gpu_row_jobs.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::RowSparse;
using tutti::Tensor;

namespace {

/// The rules: assignment of rows, every optimizer that updates rows, and an updater.
constexpr const char* kRowRules[] = {"",
                                     "sgd,learning_rate=0.1",
                                     "sgd,learning_rate=0.1,momentum=0.9,weight_decay=0.01",
                                     "adam,learning_rate=0.1,schedule=cosine,max_update=20",
                                     "adagrad,clip_gradient=0.5",
                                     "updater"};

constexpr std::int64_t kRowLengths[] = {1, 3, 4, 64, 1021};

constexpr DType kRowTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                               DType::int8,    DType::uint8,    DType::int32,   DType::int64};

RowSparse default_rows_on(Device device) {
  return {Tensor::empty({0}, DType::int64), Tensor::empty({0}, DType::float32, device)};
}

}  // namespace

TEST_CASE("pushes of rows to GPUs have the bits of the cpu, in every layout, with every rule") {
  unsigned turn = 0;
  for (const auto& layout : test::kLayouts) {
    for (const std::string rule : kRowRules) {
      ++turn;
      if (test::kFewCases && turn % 5 != 0) continue;
      const std::int64_t length = kRowLengths[turn % std::size(kRowLengths)];
      const DType dtype = turn % 2 == 0 ? DType::float32 : DType::float64;
      CAPTURE(rule);
      CAPTURE(length);
      const test::FakeGpus gpus(test::size_of_job(layout), turn);
      const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
        test::RowRig there(KVStore::create(world), {gpu(world.rank())}, dtype, length, rule);
        test::RowRig here(KVStore::create(world), {cpu()}, dtype, length, rule);
        for (unsigned step = 0; step < 2 * test::RowRig::kSteps; ++step) {
          there.push(step);
          here.push(step);
          test::require_same_tables(there, here, step);
        }
        test::require_equal(there.kv.verify().healed_since_creation, std::uint64_t{0}, "healed");
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("rows of every type and length are assigned to tables on GPUs") {
  for (const auto& layout : {std::vector<int>{1}, std::vector<int>{1, 2}}) {
    for (const DType dtype : kRowTypes) {
      for (const std::int64_t length : kRowLengths) {
        if (test::kFewCases && length != 3) continue;
        CAPTURE(length);
        CAPTURE(to_string(dtype));
        const test::FakeGpus gpus(test::size_of_job(layout), 3);
        const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
          test::RowRig there(KVStore::create(world), {gpu(world.rank())}, dtype, length, "");
          test::RowRig here(KVStore::create(world), {cpu()}, dtype, length, "");
          for (unsigned step = 0; step < test::RowRig::kSteps; ++step) {
            there.push(step);
            here.push(step);
          }
          test::require_same_tables(there, here, test::RowRig::kSteps);
        });
        CHECK(test::all_returned(outcomes));
      }
    }
  }
}

TEST_CASE("one push takes row-sparse keys on several GPUs and on the cpu") {
  const std::vector<std::vector<Device>> homes = {
      {gpu(2), cpu()}, {cpu(), gpu(1)}, {gpu(0), gpu(2)}};
  for (const std::string rule : kRowRules) {
    for (const auto& there_on : homes) {
      const test::FakeGpus gpus(3, 7);
      const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& world) {
        test::RowRig there(KVStore::create(world), there_on, DType::float32, 5, rule);
        test::RowRig here(KVStore::create(world), {cpu()}, DType::float32, 5, rule);
        for (unsigned step = 0; step < test::RowRig::kSteps; ++step) {
          there.push(step);
          here.push(step);
          test::require_same_tables(there, here, step);
        }
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("a local store keeps tables on the cpu, and takes rows on GPUs") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("local");
  kv.init_row_sparse(3, Tensor::zeros({4, 2}, DType::float32, gpu(0)));
  CHECK(kv.view(3).device() == cpu());
  const Tensor ids = test::copied_to(gpu(0), Tensor::from({2}));
  const Tensor rows = Tensor::ones({1, 2}, DType::float32, gpu(0));
  kv.push(3, row_sparse(ids, rows));
  CHECK(kv.view(3).value(4) == 1);
  RowSparse pulled = default_rows_on(gpu(0));
  kv.row_sparse_pull(3, pulled, ids);
  CHECK(pulled.rows.device() == gpu(0));
  CHECK(test::on_host(pulled.rows) == std::vector<float>{1, 1});
}

TEST_CASE("a push of any rows is one launch, and allocates nothing once it had as many") {
  for (const std::string rule : {"", "adam"}) {
    const test::FakeGpus gpus(1);
    auto kv = KVStore::create("device");
    test::set_row_rule(kv, rule);
    // More than the pool cuts from slabs, so that all allocations count.
    constexpr std::int64_t kLength = 10'007;
    for (const int key : {0, 1}) {
      kv.init_row_sparse(key, Tensor::ones({50, kLength}, DType::float32, gpu(0)));
    }
    const Tensor rows = Tensor::ones({30, kLength}, DType::float32, gpu(0));
    std::size_t allocations = 0;
    for (std::int64_t push = 0; push < 8; ++push) {
      std::vector<std::int64_t> ids(30);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = (static_cast<std::int64_t>(i) * (push + 1) + push) % 50;
      }
      const auto value = row_sparse(tutti::view(ids.data(), {30}), rows);
      const int launches = gpus->launches();
      kv.push({0, 1}, {value, value});
      if (push > 0) CHECK(gpus->launches() == launches + 1);  // the first one fills states
      if (push == 1) allocations = tutti::gpus::find_gpus()->allocations();
    }
    CHECK(tutti::gpus::find_gpus()->allocations() == allocations);
    const int launches = gpus->launches();
    kv.push(0, RowSparse{});
    CHECK(gpus->launches() == launches);
  }
}

TEST_CASE("a profiler sees the parts of a push of rows") {
  const test::FakeGpus gpus(1);
  test::RowRig rig(KVStore::create("device"), {gpu(0)}, DType::float32, 7, "sgd");
  rig.push(2);
  CHECK(gpus->ranges() == std::vector<std::string>{"copy of rows", "update of rows"});
  CHECK(gpus->open_ranges() == 0);
}

TEST_CASE("rows on a GPU are pulled to the host and to any GPU") {
  const test::FakeGpus gpus(2, 3);
  auto kv = KVStore::create("device");
  const Tensor table = test::random_rows(9, 5, DType::float32, 1);
  kv.init_row_sparse(3, test::copied_to(gpu(1), table));
  CHECK(kv.view(3).device() == gpu(1));
  CHECK(kv.view(3).to_vector<float>() == table.view().to_vector<float>());
  const Tensor ids = Tensor::from({7, 3, 4, 7});
  auto here = KVStore::create("local");
  here.init_row_sparse(3, table);
  RowSparse expected;
  here.row_sparse_pull(3, expected, ids);
  std::vector<RowSparse> pulled;
  for (const Device device : {cpu(), gpu(1), gpu(0)}) {
    for (const Device ids_on : {cpu(), gpu(0), gpu(1)}) {
      pulled.clear();
      pulled.push_back(default_rows_on(device));
      pulled.push_back({Tensor::empty({3}, DType::int64, ids_on),
                        Tensor::empty({3, 5}, DType::float32, device)});
      const std::byte* const kept = pulled[1].rows.bytes();
      kv.row_sparse_pull(3, pulled, test::copied_to(ids_on, ids));
      CHECK(pulled[1].rows.bytes() == kept);
      for (const RowSparse& one : pulled) {
        CHECK(one.rows.device() == device);
        CHECK(one.rows.shape() == tutti::Shape{3, 5});
        CHECK(one.ids.view().to_vector<int>() == std::vector<int>{3, 4, 7});
        CHECK(test::have_same_bytes(test::copied_to(cpu(), one.rows), expected.rows));
      }
      CHECK(pulled[1].ids.device() == ids_on);
    }
  }
  const int launches = gpus->launches();
  RowSparse none;
  kv.row_sparse_pull(3, none, Tensor::empty({0}, DType::int64));
  CHECK(none.rows.shape() == tutti::Shape{0, 5});
  CHECK(gpus->launches() == launches);
}

TEST_CASE("a table of zeros may begin on a GPU, without a value") {
  const test::FakeGpus gpus(2);
  const auto outcomes = test::as_ranks({2}, test::by("auto"), [&](Communicator& world) {
    auto kv = KVStore::create(world);
    const Device mine = gpu(world.rank());
    kv.init_row_sparse(3, {5, 2}, DType::float64, mine);
    test::require_equal(kv.view(3).device() == mine, true, "the table is on the GPU");
    kv.push(3, RowSparse::from({4}, Tensor::ones({1, 2}, DType::float64)));
    const auto all = kv.view(3).to_vector<double>();
    test::require_equal(all == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 2, 2}, true, "rows");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a pull of whole tensors ignores a table on a GPU, unless it is told not to") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device", test::by("auto"));
  kv.init_row_sparse(3, Tensor::ones({2, 2}, DType::float32, gpu(0)));
  Tensor out = Tensor::full({2, 2}, 5, DType::float32, gpu(0));
  kv.pull(3, out);
  CHECK(test::on_host(out) == std::vector<float>{5, 5, 5, 5});
  kv.pull(3, out, tutti::PullOptions{.ignore_sparse = false});
  CHECK(test::on_host(out) == std::vector<float>{1, 1, 1, 1});
}

TEST_CASE("an updater of rows gets ids on the host, and rows and table on the GPU") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init_row_sparse("a", Tensor::ones({4, 2}, DType::float32, gpu(0)));
  std::vector<std::int64_t> seen;
  kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {},
                 [&](const Key& key, const tutti::RowSparseView& merged, tutti::TensorView stored) {
                   CHECK(key == Key("a"));
                   CHECK(merged.rows().device() == gpu(0));
                   CHECK(stored.device() == gpu(0));
                   const auto ids = merged.ids().values<std::int64_t>();
                   seen.assign(ids.begin(), ids.end());
                   stored *= 3;
                 });
  kv.push("a", RowSparse::from({3, 1, 3}, Tensor::ones({3, 2}, DType::float32, gpu(0))));
  CHECK(seen == std::vector<std::int64_t>{1, 3});
  CHECK(kv.view("a").value(0) == 3);
  kv.push("a", RowSparse{});
  CHECK(seen.empty());
}

TEST_CASE("in C, rows on a GPU are pushed to a table there, and pulled to the host") {
  const test::FakeGpus gpus(1);
  const auto in_c = [](Tensor& tensor) {
    const auto dimensions = tensor.shape().dimensions();
    return tutti_tensor{tensor.bytes(),
                        dimensions.data(),
                        static_cast<int>(dimensions.size()),
                        tensor.dtype() == DType::int64 ? TUTTI_INT64 : TUTTI_FLOAT32,
                        tensor.device() == cpu() ? TUTTI_CPU : TUTTI_GPU,
                        0};
  };
  tutti_kvstore* kv = nullptr;
  REQUIRE(tutti_kvstore_create("device", nullptr, &kv) == 0);
  Tensor zeros = Tensor::zeros({4, 2}, DType::float32, gpu(0));
  Tensor rows = Tensor::full({2, 2}, 5, DType::float32, gpu(0));
  Tensor ids = test::copied_to(gpu(0), Tensor::from(std::vector<std::int64_t>{3, 1}));
  const tutti_tensor table = in_c(zeros);
  const tutti_item item = {{nullptr, 7}, &table, 1, nullptr, 0};
  CHECK(tutti_kvstore_init_row_sparse(kv, &item, 1) == 0);
  const tutti_rows value = {in_c(ids), in_c(rows)};
  const tutti_rows_item pushed = {{nullptr, 7}, &value, 1};
  CHECK(tutti_kvstore_push_rows(kv, &pushed, 1, 0) == 0);
  tutti_buffer* pulled_ids = nullptr;
  tutti_buffer* pulled_rows = nullptr;
  CHECK(tutti_kvstore_row_sparse_pull(kv, &item.key, &value.ids, &pulled_ids, &pulled_rows) == 0);
  tutti_tensor found = {};
  CHECK(tutti_buffer_tensor(pulled_rows, &found) == 0);
  CHECK(found.device_kind == TUTTI_CPU);
  CHECK(static_cast<const float*>(found.data)[3] == 5);
  tutti_tensor view = {};
  CHECK(tutti_kvstore_view(kv, &item.key, &view) == 0);
  CHECK(view.device_kind == TUTTI_GPU);
  tutti_buffer_destroy(pulled_ids);
  tutti_buffer_destroy(pulled_rows);
  CHECK(tutti_kvstore_destroy(kv) == 0);
}

TEST_CASE("statistics of rows on GPUs are those of rows on the cpu") {
  const test::FakeGpus gpus(1);
  std::vector<tutti::CallStatistics> counted;
  for (const Device home : {gpu(0), cpu()}) {
    test::RowRig rig(KVStore::create("device"), {home}, DType::float32, 7, "sgd");
    for (unsigned step = 0; step < 4; ++step) rig.push(step);
    RowSparse pulled;
    rig.kv.row_sparse_pull(0, pulled, Tensor::from({1, 2}));
    counted.push_back(rig.kv.statistics().total("push"));
    counted.push_back(rig.kv.statistics().total("row_sparse_pull"));
  }
  for (const std::size_t i : {0, 1}) {
    CHECK(counted[i].calls == counted[i + 2].calls);
    CHECK(counted[i].bytes == counted[i + 2].bytes);
    CHECK(counted[i].bytes > 0);
  }
}

TEST_CASE("tables of checkpoints go from GPUs to the cpu and back, and go on with the same bits") {
  for (const std::string rule : {"", "adam,learning_rate=0.1"}) {
    const test::FakeGpus gpus(3, 5);
    const test::ScratchFolder folder;
    const auto outcomes = test::as_ranks({1, 2}, test::by("auto"), [&](Communicator& world) {
      const auto make = [&](Device home) {
        return test::RowRig(KVStore::create(world), {home}, DType::float32, 5, rule);
      };
      const Device mine = gpu(world.rank());
      test::RowRig whole = make(cpu());
      test::RowRig there = make(mine);
      for (unsigned step = 0; step < 3; ++step) {
        whole.push(step);
        there.push(step);
      }
      whole.kv.save(folder.path() / "cpu");
      there.kv.save(folder.path() / "gpu");
      test::RowRig from_cpu = make(mine);
      test::RowRig from_gpu = make(mine);
      test::RowRig from_gpu_to_cpu = make(cpu());
      from_cpu.kv.load(folder.path() / "cpu");
      from_gpu.kv.load(folder.path() / "gpu");
      from_gpu_to_cpu.kv.load(folder.path() / "gpu");
      for (unsigned step = 3; step < 6; ++step) {
        whole.push(step);
        for (test::RowRig* rig : {&there, &from_cpu, &from_gpu, &from_gpu_to_cpu}) {
          rig->push(step);
          test::require_same_tables(*rig, whole, step);
        }
      }
      test::require_equal(from_cpu.kv.view(0).device() == mine, true, "the table is on the GPU");
      if (rule.empty()) return;
      there.kv.save_optimizer_states(folder.path() / "states");
      from_cpu.kv.load_optimizer_states(folder.path() / "states");
      from_cpu.push(7);
      whole.push(7);
      test::require_same_tables(from_cpu, whole, 7);
    });
    CHECK(test::all_returned(outcomes));
  }
}
