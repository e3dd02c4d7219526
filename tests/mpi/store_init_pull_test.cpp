// SPDX-License-Identifier: Apache-2.0
// How values come into a store and out of it again: init, pull, view, pushpull, broadcast.
#include <optional>
#include <vector>

#include "tests/mpi/oracle.hpp"
#include "tests/mpi/store_fixture.hpp"

using test::filled;
using tutti::Cast;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::TensorView;

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
