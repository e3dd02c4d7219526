// SPDX-License-Identifier: Apache-2.0
// The first values, what comes back, and a tour of all calls.
#include <optional>
#include <string>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

using test::filled;
using tutti::Cast;
using tutti::ConstTensorView;
using tutti::cpu;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::TensorView;

// --- init and pull -------------------------------------------------------------------------------

// How values come into a store and out of it again: init, pull, view, pushpull, broadcast.

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;

void add(const Key&, tutti::ConstTensorView merged, TensorView stored) { stored += merged; }

}  // namespace

TEST_CASE("init stores rank 0's value on every rank, whatever the others hold") {
  KVStore kv = test::dist();
  kv.init(3, filled(test::one_plus_rank()));
  CHECK(test::all_are(test::stored(kv, 3), 1));
  const std::vector<Key> keys = {4, 5};
  kv.init(keys, {filled(10 + test::rank()), filled(20 + test::rank())});
  CHECK(test::all_are(test::stored(kv, 4), 10));
  CHECK(test::all_are(test::stored(kv, 5), 20));
}

TEST_CASE("init keeps every dtype, shape and bit of rank 0, also of large tensors") {
  KVStore kv = test::dist();
  int key = 0;
  for (const DType dtype : test::kDTypes) {
    for (const std::int64_t count : {0, 1, 1023, 400001}) {
      CAPTURE(count);
      kv.init(key, test::random_tensor({count, 1}, dtype, test::rank()));
      const Tensor expected = test::random_tensor({count, 1}, dtype, 0);
      const Tensor found = test::stored(kv, key++);
      CHECK(test::agree(test::same_bits(found, expected) && found.shape() == expected.shape()));
    }
  }
}

TEST_CASE("when init returns, the value is in place on every rank") {
  KVStore kv = test::dist();
  for (int key = 0; key < 200; ++key) {
    kv.init(key, filled(key + 1000 * test::rank()));
    Tensor out = filled(-1);
    kv.pull(key, out);
    REQUIRE(test::all_are(out, static_cast<float>(key)));
  }
}

TEST_CASE("init takes the first of a list of values, as the value and not as a sum") {
  test::for_each_type([](KVStore& kv, float) {
    std::vector<std::vector<Tensor>> lists(2);
    for (int i = 0; i < 3; ++i) {
      lists[0].push_back(filled(1 + i));
      lists[1].push_back(filled(11 + i));
    }
    kv.init({1, 2}, lists);
    CHECK(test::all_are(test::stored(kv, 1), 1));
    CHECK(test::all_are(test::stored(kv, 2), 11));
  });
}

TEST_CASE("a second init of a key is refused with its name and changes nothing") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(2));
    CHECK(test::throws_on_all([&] { kv.init(3, filled(7)); }, kInvalid, {"3"}));
    CHECK(test::throws_on_all([&] { kv.init({4, 3}, {filled(7), filled(7)}); }, kInvalid, {"3"}));
    CHECK(test::all_are(test::stored(kv, 3), 2));
    kv.init(4, filled(5));  // the refused list did not store it
    CHECK(test::all_are(test::stored(kv, 4), 5));
  });
}

TEST_CASE("an init with a key twice in its list is refused and stores nothing") {
  test::for_each_type([](KVStore& kv, float) {
    CHECK(test::throws_on_all(
        [&] {
          kv.init({3, 3}, {filled(1), filled(2)});
        },
        kInvalid, {"key 3"}));
    kv.init(3, filled(5));
    CHECK(test::all_are(test::stored(kv, 3), 5));
  });
}

TEST_CASE(
    "pull fills many destinations, on any cpu, a destination listed twice, and lists per key") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init({1, 2}, {filled(5), filled(6)});
    Tensor a = filled(0);
    Tensor b = Tensor::zeros({2, 3}, DType::float32, tutti::cpu(7));
    kv.pull(1, {a, b, a});
    CHECK(test::all_are(a, 5));
    CHECK(test::all_are(b, 5));
    std::vector<std::vector<TensorView>> lists = {{a, a}, {b}};
    kv.pull({2, 1}, lists);
    CHECK(test::all_are(a, 6));
    CHECK(test::all_are(b, 5));
    kv.pull({1, 1}, {a, b});
    CHECK(test::all_are(a, 5));
  });
}

TEST_CASE("pull talks to nobody: one rank may pull while the others do not") {
  KVStore kv = test::dist();
  kv.init(3, filled(5));
  Tensor out = filled(0);
  for (int i = 0; i < 100 && test::rank() == test::size() - 1; ++i) kv.pull(3, out);
  CHECK(test::agree(test::rank() != test::size() - 1 || out.values<float>()[5] == 5));
  kv.barrier();
}

TEST_CASE("pull into another dtype converts with Cast::yes and is an error without it") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(2.75));
    for (const DType dtype : test::kDTypes) {
      if (dtype == DType::float32) continue;
      Tensor out = Tensor::full({2, 3}, 1, dtype);
      CHECK(test::throws_on_all([&] { kv.pull(3, out); }, kInvalid,
                                {"3", "float32", tutti::to_string(dtype)}));
      CHECK(test::agree(test::same_bits(out, Tensor::full({2, 3}, 1, dtype))));
      kv.pull(3, out, Cast::yes);
      CHECK(test::agree(test::same_bits(out, Tensor::full({2, 3}, 2.75, dtype))));
    }
    CHECK(test::all_are(test::stored(kv, 3), 2.75));
  });
}

TEST_CASE("pull into another shape is refused with both shapes and fills no destination") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(2));
    Tensor right = filled(0);
    Tensor wrong = filled(0, {3, 2});
    CHECK(test::throws_on_all(
        [&] {
          kv.pull(3, {right, wrong});
        },
        kInvalid, {"3", "(2, 3)", "(3, 2)"}));
    CHECK(test::all_are(right, 0));
    CHECK(test::all_are(wrong, 0));
    CHECK(test::throws_on_all([&] { kv.pull({3, 3}, {right}); }, kInvalid, {}));
  });
}

TEST_CASE("view is the replica itself: no copy, the same address, it shows the next push") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(2));
    const tutti::ConstTensorView view = kv.view(3);
    CHECK(test::all_are(view, 2));
    CHECK(test::agree(view.bytes() == kv.view(3).bytes()));
    kv.push(3, filled(8));
    CHECK(test::all_are(view, 8 * pushed));
    kv.set_updater(add);
    kv.push(3, filled(1));
    CHECK(test::all_are(view, 9 * pushed));
    CHECK(test::agree(view.bytes() == kv.view(3).bytes()));
  });
}

TEST_CASE("views and allocated tensors stay readable after their store is gone") {
  for (const char* type : {"local", "dist"}) {
    std::optional<tutti::ConstTensorView> view;
    std::optional<Tensor> own;
    {
      KVStore kv = KVStore::create(type, test::settings());
      kv.init(3, filled(2, {1000}));
      view.emplace(kv.view(3));
      own.emplace(kv.allocate({1000}));
      own->fill(4);
    }
    CHECK(test::all_are(*view, 2));
    CHECK(test::all_are(*own, 4));
  }
}

TEST_CASE("pushpull gives the outputs the value after the update") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(100), filled(200)});
    kv.set_updater(add);
    Tensor a = filled(0);
    Tensor b = filled(0);
    kv.pushpull({1, 2}, {filled(1), filled(2)}, {a, b});
    CHECK(test::all_are(a, 100 + pushed));
    CHECK(test::all_are(b, 200 + 2 * pushed));
    kv.pushpull(1, {filled(1), filled(1)}, {a, b});
    CHECK(test::all_are(a, 100 + 3 * pushed));
    CHECK(test::all_are(b, 100 + 3 * pushed));
    CHECK(test::all_are(test::stored(kv, 1), 100 + 3 * pushed));
  });
}

TEST_CASE("pushpull without outputs writes back into the values, which is a sum over all ranks") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(100), filled(200)});
    Tensor plain = filled(3);
    Tensor own = kv.allocate({2, 3});
    own.fill(4);
    kv.pushpull({1, 2}, {plain, own});
    CHECK(test::all_are(plain, 3 * pushed));
    CHECK(test::all_are(own, 4 * pushed));
    Tensor other = filled(1);
    plain.fill(1);
    kv.pushpull(1, {plain, other});
    CHECK(test::all_are(plain, 2 * pushed));
    CHECK(test::all_are(other, 2 * pushed));
    kv.set_updater(add);
    own.fill(5);
    kv.pushpull(2, own);
    CHECK(test::all_are(own, 9 * pushed));
  });
}

TEST_CASE(
    "broadcast is init and pull: every rank has rank 0's value in the store and the outputs") {
  test::for_each_type([](KVStore& kv, float) {
    Tensor a = filled(0);
    Tensor b = filled(0);
    kv.broadcast({1, 2}, {filled(5), filled(6)}, {a, b});
    CHECK(test::all_are(a, 5));
    CHECK(test::all_are(b, 6));
    CHECK(test::all_are(test::stored(kv, 2), 6));
    CHECK(test::throws_on_all([&] { kv.broadcast(1, filled(5), a); }, kInvalid, {"1"}));
  });
  KVStore kv = test::dist();
  Tensor a = filled(0);
  kv.broadcast("weight", filled(test::one_plus_rank()), a);
  CHECK(test::all_are(a, 1));
}

TEST_CASE("a broadcast whose output does not fit on one rank leaves no key on any") {
  KVStore kv = test::dist();
  Tensor fits = filled(0);
  Tensor odd_shape = filled(0, {3, 2});
  Tensor odd_dtype = Tensor::zeros({2, 3}, DType::float64);
  for (Tensor* odd : {&odd_shape, &odd_dtype}) {
    Tensor& mine = test::is_last() ? *odd : fits;
    CHECK(test::throws_on_all(
        [&] {
          kv.broadcast({8, 7}, {filled(1), filled(2)}, {fits, mine});
        },
        kInvalid, {test::last(), "broadcast: key 7", "an output"}));
  }
  kv.broadcast({8, 7}, {filled(1), filled(2)}, {odd_shape = filled(0), fits});
  CHECK(test::all_are(odd_shape, 1));
  CHECK(test::all_are(fits, 2));
}

TEST_CASE(
    "the stored shape and dtype are those of init for good: another is refused, naming both") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(2));
    CHECK(test::throws_on_all(
        [&] {
          kv.push(3, filled(1, {3, 2}));
        },
        kInvalid, {"3", "(2, 3)", "(3, 2)"}));
    CHECK(test::throws_on_all(
        [&] {
          kv.push(3, Tensor::ones({2, 3}, DType::float64));
        },
        kInvalid, {"3", "float32", "float64"}));
    CHECK(test::throws_on_all(
        [&] {
          kv.push(3, {filled(1), filled(1, {6})});
        },
        kInvalid, {"3", "(2, 3)", "(6)"}));
    CHECK(test::all_are(test::stored(kv, 3), 2));
    kv.push(3, filled(4));
    CHECK(test::all_are(test::stored(kv, 3), 4 * pushed));
    CHECK(test::agree(kv.view(3).shape() == tutti::Shape{2, 3}));
    CHECK(test::agree(kv.view(3).dtype() == DType::float32));
  });
}

// --- a tour --------------------------------------------------------------------------------------

// The tour through a store that tutorials of key-value stores take, for every type of store and any
// number of ranks. Where they say a number for one process, "dist" gives it for the sum over ranks.

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
