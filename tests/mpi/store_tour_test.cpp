// SPDX-License-Identifier: Apache-2.0
// The tour through a store that tutorials of key-value stores take, for every type of store and any
// number of ranks. Where they say a number for one process, "dist" gives it for the sum over ranks.
#include <string>
#include <vector>

#include "tests/mpi/store_fixture.hpp"

using tutti::ConstTensorView;
using tutti::cpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::TensorView;

namespace {

std::vector<Tensor> on_cpus(int count, double value) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back(Tensor::full({2, 3}, value, tutti::DType::float32, cpu(i)));
  }
  return tensors;
}

std::vector<std::vector<Tensor>> lists_on_cpus(int keys, int count, double value) {
  std::vector<std::vector<Tensor>> lists;
  for (int i = 0; i < keys; ++i) lists.push_back(on_cpus(count, value));
  return lists;
}

// stored += input * factor; writes what the tutorials print.
tutti::Updater printing_updater(std::vector<std::string>& printed, double factor) {
  return [&printed, factor](const Key& key, ConstTensorView input, TensorView stored) {
    printed.push_back("update on key: " + to_string(key));
    stored += input * factor;
  };
}

void at_four(KVStore& kv) { kv.init(3, test::filled(4.0f)); }

}  // namespace

TEST_CASE("create, init 3 with 2, pull: all 2") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, test::filled(2));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, 2));
  });
}

TEST_CASE("push 8 without an updater, pull: all 8, the old value is replaced") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, test::filled(2));
    kv.push(3, test::filled(8));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, 8 * pushed));
  });
}

TEST_CASE("push a list of ones on cpu(0) to cpu(3), pull: all 4, the list is summed") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, test::filled(2));
    kv.push(3, on_cpus(4, 1));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, 4 * pushed));
  });
}

TEST_CASE("setting an updater changes nothing until the next push: still all 4") {
  test::for_each_type([](KVStore& kv, float) {
    at_four(kv);
    std::vector<std::string> printed;
    kv.set_updater(printing_updater(printed, 2));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, 4));
    CHECK(test::agree(printed.empty()));
  });
}

TEST_CASE("push ones with stored += input * 2: prints update on key: 3, pull gives all 6") {
  test::for_each_type([](KVStore& kv, float pushed) {
    at_four(kv);
    std::vector<std::string> printed;
    kv.set_updater(printing_updater(printed, 2));
    kv.push(3, Tensor::ones({2, 3}));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, 4 + 2 * pushed));
    CHECK(test::agree(printed == std::vector<std::string>{"update on key: 3"}));
  });
}

TEST_CASE("pull into four tensors on cpu(0) to cpu(3): the value in each") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, test::filled(6));
    std::vector<Tensor> outputs = on_cpus(4, 0);
    kv.pull(3, outputs);
    for (const Tensor& output : outputs) CHECK(test::all_are(output, 6));
  });
}

TEST_CASE("push to keys 5, 7, 9: three updates in this order, all 3") {
  test::for_each_type([](KVStore& kv, float pushed) {
    const std::vector<int> keys = {5, 7, 9};
    kv.init(keys, on_cpus(3, 1));
    std::vector<std::string> printed;
    kv.set_updater(printing_updater(printed, 2));
    kv.push(keys, on_cpus(3, 1));
    std::vector<Tensor> outputs = on_cpus(3, 0);
    kv.pull(keys, outputs);
    for (const Tensor& output : outputs) CHECK(test::all_are(output, 1 + 2 * pushed));
    const std::vector<std::string> lines = {"update on key: 5", "update on key: 7",
                                            "update on key: 9"};
    CHECK(test::agree(printed == lines));
  });
}

TEST_CASE("push four ones to each of the keys 5, 7, 9, pull into four tensors each: all 11") {
  test::for_each_type([](KVStore& kv, float pushed) {
    const std::vector<int> keys = {5, 7, 9};
    kv.init(keys, on_cpus(3, 3));
    std::vector<std::string> printed;
    kv.set_updater(printing_updater(printed, 2));
    kv.push(keys, lists_on_cpus(3, 4, 1));
    auto outputs = lists_on_cpus(3, 4, 0);
    kv.pull(keys, outputs);
    for (const auto& list : outputs) {
      for (const Tensor& output : list) CHECK(test::all_are(output, 3 + 8 * pushed));
    }
    const std::vector<std::string> lines = {"update on key: 5", "update on key: 7",
                                            "update on key: 9"};
    CHECK(test::agree(printed == lines));
  });
}

TEST_CASE("init 3 with -2, pull: all -2; push -7, pull: all -7") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, test::filled(-2));
    Tensor a = Tensor::zeros({2, 3});
    kv.pull(3, a);
    CHECK(test::all_are(a, -2));
    kv.push(3, test::filled(-7));
    kv.pull(3, a);
    CHECK(test::all_are(a, -7 * pushed));
  });
}

TEST_CASE("push ones on three devices over -7, pull: all 3") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, test::filled(-7));
    kv.push(3, on_cpus(3, 1));
    CHECK(test::all_are(kv.view(3), 3 * pushed));
  });
}

TEST_CASE("keys 7, 11, 13, 17: -0.1 on three devices each gives all -0.3") {
  test::for_each_type([](KVStore& kv, float pushed) {
    const std::vector<Key> keys = {7, 11, 13, 17};
    kv.init(keys, on_cpus(4, -3));
    kv.push(keys, lists_on_cpus(4, 3, -0.1));
    std::vector<Tensor> outputs = on_cpus(4, 0);
    kv.pull(keys, outputs);
    for (const Tensor& output : outputs) CHECK(test::all_near(output, -0.3f * pushed));
  });
}

TEST_CASE("stored += input * 0.01 on 3, push 5: all 3.05") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, test::filled(3));
    std::vector<std::string> printed;
    kv.set_updater(printing_updater(printed, 0.01));
    kv.push(3, test::filled(5));
    CHECK(test::all_near(kv.view(3), 3 + 0.05f * pushed));
    CHECK(test::agree(printed.size() == 1));
  });
}

TEST_CASE("dist runs the updater on every rank, after the sum over ranks") {
  KVStore kv = test::dist();
  kv.init(3, test::filled(0));
  std::vector<float> inputs;
  kv.set_updater([&](const Key&, ConstTensorView input, TensorView stored) {
    inputs.push_back(input.values<float>()[0]);
    stored.copy_from(input);
  });
  kv.push(3, test::filled(test::one_plus_rank()));
  CHECK(test::agree(inputs == std::vector<float>{test::sum_of_ranks()}));
  CHECK(test::all_are(kv.view(3), test::sum_of_ranks()));
}
