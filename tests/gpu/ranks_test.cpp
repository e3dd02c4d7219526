// SPDX-License-Identifier: Apache-2.0
// Ranks with a real GPU: the sum over ranks by NCCL, by the host, and by both. On a machine with
// one GPU the ranks share it; they tell NCCL that they are hosts of their own, and it then lets
// them talk through sockets.
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using tutti::DType;
using tutti::gpu;
using tutti::KVStore;
using tutti::Tensor;

namespace {

/// Says why there is nothing to test, in words that ctest takes for a skipped test.
bool has_gpu() {
  if (tutti::num_gpus() > 0) return true;
  if (test::rank() == 0) MESSAGE("skipped for want of a GPU: ", tutti::describe_gpus());
  return false;
}

/// Before NCCL reads it, which is when a store first sums.
void be_a_host_of_its_own() {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(test::rank())).c_str(), 1);
}

/// Small whole numbers: any order of summation gives the same.
Tensor ramp(std::int64_t count, DType dtype, int rank) {
  Tensor values = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i) {
    values.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i % 7 + rank);
  }
  Tensor tensor = Tensor::empty({count}, dtype, gpu(0));
  tensor.view().copy_from(values);
  return tensor;
}

std::size_t count_wrong(const KVStore& kv, int key, std::int64_t count) {
  Tensor out = Tensor::zeros({count});
  kv.pull(key, out, tutti::Cast::yes);
  const auto ranks = static_cast<float>(kv.num_workers());
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float expected = static_cast<float>(i % 7) * ranks + ranks * (ranks - 1) / 2;
    if (out.values<float>()[static_cast<std::size_t>(i)] != expected) ++wrong;
  }
  return wrong;
}

}  // namespace

TEST_CASE("a push sums values on GPUs over the ranks, of every type and size") {
  if (!has_gpu()) return;
  be_a_host_of_its_own();
  auto kv = KVStore::create("dist");
  int key = 0;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::int32}) {
    for (const std::int64_t count : {1, 7, 1000, 1'000'003}) {
      CAPTURE(count);
      kv.init(key, Tensor::zeros({count}, dtype, gpu(0)));
      kv.push(key, ramp(count, dtype, test::rank()));
      CHECK(test::agree(count_wrong(kv, key, count) == 0));
      ++key;
    }
  }
}

TEST_CASE("by way of the host or by peers, sums have the bits of values on the cpu") {
  if (!has_gpu()) return;
  const std::string path = tutti::Settings::from_environment().gpu_path;
  if (path != "host" && path != "peers") return;
  auto kv = KVStore::create("dist");
  int key = 0;
  for (const DType dtype :
       {DType::float32, DType::bfloat16, DType::float16, DType::float64, DType::uint8}) {
    for (const std::int64_t count : {1, 1001, 300'001}) {
      CAPTURE(count);
      const Tensor value = test::random_tensor({count}, dtype, test::rank());
      Tensor there = Tensor::empty({count}, dtype, gpu(0));
      there.view().copy_from(value);
      kv.init(key, Tensor::zeros({count}, dtype, gpu(0)));
      for (int step = 0; step < 3; ++step) kv.push(key, there);
      Tensor found = Tensor::zeros({count}, dtype);
      kv.pull(key, found);
      CHECK(test::agree(test::same_bits(
          found, test::reduced_random(tutti::ReduceOp::sum, {count}, dtype, test::size()))));
      ++key;
    }
  }
}

TEST_CASE("ranks that train on GPUs have the weights of a store on the cpu") {
  if (!has_gpu()) return;
  be_a_host_of_its_own();
  auto kv = KVStore::create("dist");
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.125, .momentum = 0.5}));
  for (const int key : {0, 1}) {
    kv.init(key, Tensor::ones({1000}, DType::float32, key == 0 ? gpu(0) : tutti::cpu()));
  }
  for (int step = 0; step < 5; ++step) {
    const Tensor gradient = ramp(1000, DType::float32, test::rank() + step);
    kv.push(0, gradient);
    kv.push(1, gradient);
  }
  Tensor there = Tensor::empty({1000});
  Tensor here = Tensor::empty({1000});
  kv.pull(0, there);
  kv.pull(1, here);
  CHECK(test::agree(std::ranges::equal(there.values<float>(), here.values<float>())));
}

TEST_CASE("compressed pushes to GPUs have the bits of keys on the cpu") {
  if (!has_gpu()) return;
  be_a_host_of_its_own();
  for (const char* compression : {"2bit,threshold=0.5", "topk,ratio=0.1",
                                  "2bit,threshold=2.5,leg=between", "fp16,leg=between"}) {
    CAPTURE(compression);
    const bool is_whole = std::string(compression).find("between") != std::string::npos;
    auto kv = KVStore::create("dist");
    kv.set_gradient_compression(compression);
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.125, .momentum = 0.5}));
    int key = 0;
    for (const std::int64_t count : {0, 1, 1001, 70'001}) {
      CAPTURE(count);
      kv.init(key, Tensor::ones({count}, DType::float32, gpu(0)));
      kv.init(key + 1, Tensor::ones({count}));
      for (int step = 0; step < 3; ++step) {
        // Without compression, within a node, GPUs sum in an order of their own.
        const Tensor gradient =
            is_whole ? ramp(count, DType::float32, test::rank() + step)
                     : test::random_tensor({count}, DType::float32, test::rank() + 10 * step);
        kv.push(key, gradient);
        kv.push(key + 1, gradient);
      }
      Tensor there = Tensor::zeros({count});
      Tensor here = Tensor::zeros({count});
      kv.pull(key, there);
      kv.pull(key + 1, here);
      CHECK(test::agree(test::same_bits(there, here)));
      key += 2;
    }
  }
}

TEST_CASE("row-sparse keys on GPUs have the bits of keys on the cpu") {
  if (!has_gpu()) return;
  be_a_host_of_its_own();
  constexpr std::int64_t kRows = 60;
  for (const char* rule : {"", "sgd,learning_rate=0.1,momentum=0.9", "adam", "adagrad"}) {
    CAPTURE(rule);
    auto kv = KVStore::create("dist");
    if (*rule != '\0') kv.set_optimizer(tutti::optimizer::create(rule));
    int key = 0;
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const std::int64_t length : {1, 3, 4, 64, 1021}) {
        CAPTURE(length);
        kv.init_row_sparse(key, Tensor::zeros({kRows, length}, dtype, gpu(0)));
        kv.init_row_sparse(key + 1, Tensor::zeros({kRows, length}, dtype));
        for (const std::int64_t count : {0, 1, 17, 60, 100}) {
          std::vector<std::int64_t> ids;
          for (std::int64_t i = 0; i < count; ++i) ids.push_back((i * i + test::rank()) % kRows);
          const Tensor rows = test::random_tensor({count, length}, dtype, test::rank());
          Tensor there = Tensor::empty({count, length}, dtype, gpu(0));
          there.view().copy_from(rows);
          const tutti::ConstTensorView which = tutti::view(ids.data(), {count});
          kv.push({key, key + 1}, {row_sparse(which, there), row_sparse(which, rows)});
        }
        std::vector<tutti::RowSparse> pulled(4);
        pulled[2].rows = Tensor::empty({0}, dtype, gpu(0));
        std::vector<std::int64_t> every_third;
        for (std::int64_t id = 0; id < kRows; id += 3) every_third.push_back(id);
        const auto count = static_cast<std::int64_t>(every_third.size());
        kv.row_sparse_pull({key, key + 1, key}, std::span(pulled).first(3),
                           tutti::view(every_third.data(), {count}));
        pulled[3].rows = Tensor::empty({count, length}, dtype);
        pulled[3].rows.view().copy_from(pulled[2].rows);
        CHECK(test::agree(test::same_bits(pulled[0].rows, pulled[1].rows)));
        CHECK(test::agree(test::same_bits(pulled[3].rows, pulled[1].rows)));
        key += 2;
      }
    }
    CHECK(test::agree(kv.verify().healed_since_creation == 0));
  }
}
