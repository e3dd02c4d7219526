// SPDX-License-Identifier: Apache-2.0
// Updaters: functions of the user's that run on every rank's replica.
#include <memory>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

using test::filled;
using tutti::ConstTensorView;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::TensorView;

TEST_CASE("an updater gets the key, the sum over the list and all ranks, and the stored value") {
  KVStore kv = test::dist();
  kv.init("weight", filled(10));
  bool right = false;
  kv.set_updater([&](const Key& key, ConstTensorView merged, TensorView stored) {
    right = key == Key("weight") && merged.values<float>()[5] == 2 * test::sum_of_ranks() &&
            stored.values<float>()[5] == 10 && merged.shape() == stored.shape();
    stored -= merged;
  });
  const Tensor value = filled(test::one_plus_rank());
  kv.push("weight", {value, value});
  CHECK(test::agree(right));
  CHECK(test::all_are(test::stored(kv, "weight"), 10 - 2 * test::sum_of_ranks()));
}

TEST_CASE(
    "an updater sees the whole tensor at once, whatever its size, and the same on all ranks") {
  KVStore kv = test::dist();
  const tutti::Shape shape = {1000003};
  kv.init(3, Tensor::zeros(shape));
  int calls = 0;
  kv.set_updater([&](const Key&, ConstTensorView merged, TensorView stored) {
    calls += merged.shape() == shape && stored.shape() == shape ? 1 : 100;
    stored.copy_from(merged);
  });
  kv.push(3, test::random_tensor(shape, tutti::DType::float32, test::rank()));
  CHECK(test::agree(calls == 1));
  CHECK(test::same_on_all(test::bytes_of(kv.view(3))));
}

TEST_CASE("a later updater replaces an earlier one") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(1));
    for (const double factor : {2.0, 10.0}) {
      kv.set_updater([=](const Key&, ConstTensorView merged, TensorView stored) {
        stored += factor * merged;
      });
      kv.push(3, filled(1));
    }
    CHECK(test::all_are(test::stored(kv, 3), 1 + 12 * pushed));
  });
}

TEST_CASE("an empty updater means ASSIGN again") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(1));
    kv.set_updater([](const Key&, ConstTensorView, TensorView) {});
    kv.push(3, filled(5));
    CHECK(test::all_are(test::stored(kv, 3), 1));
    kv.set_updater(nullptr);
    kv.push(3, filled(5));
    CHECK(test::all_are(test::stored(kv, 3), 5 * pushed));
  });
}

TEST_CASE("an updater that changes nothing leaves the stored value") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(1, {70000}));
    kv.set_updater([](const Key&, ConstTensorView, TensorView) {});
    kv.push(3, filled(5, {70000}));
    CHECK(test::all_are(test::stored(kv, 3), 1));
  });
}

TEST_CASE("an updater may keep state of its own, such as a move-only object behind a pointer") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(0));
    auto momentum = std::make_shared<Tensor>(filled(0));
    kv.set_updater([momentum](const Key&, ConstTensorView merged, TensorView stored) {
      TensorView state = *momentum;
      state *= 0.5;
      state += merged;
      stored += ConstTensorView(state);
    });
    kv.push(3, filled(4));
    kv.push(3, filled(4));
    CHECK(test::all_are(test::stored(kv, 3), (4 + 2 + 4) * pushed));
  });
}

TEST_CASE("pull and view are allowed inside an updater") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(10), filled(20)});
    kv.set_updater([&](const Key& key, ConstTensorView merged, TensorView stored) {
      if (key != Key(2)) return;
      Tensor other = filled(0);
      kv.pull(1, other);
      CHECK(kv.view(2).bytes() == stored.bytes());
      stored += merged;
      stored += other;
    });
    kv.push(2, filled(1));
    CHECK(test::all_are(test::stored(kv, 2), 30 + pushed));
  });
}

TEST_CASE(
    "a collective call inside an updater is an error; the push around it goes on if it is caught") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(10), filled(20)});
    const std::vector<std::function<void()>> calls = {
        [&] { kv.push(1, filled(1)); },
        [&] { kv.push(2, filled(1)); },
        [&] { kv.init(3, filled(1)); },
        [&] { kv.barrier(); },
        [&] {
          kv.pushpull(1, filled(1), Tensor::zeros({2, 3}));
        },
        [&] { kv.agree([] {}); },
    };
    for (const auto& call : calls) {
      bool refused = false;
      kv.set_updater([&](const Key&, ConstTensorView merged, TensorView stored) {
        refused = test::is_refusal(test::error_of(call), ErrorCode::invalid_argument, {"updater"});
        stored.copy_from(merged);
      });
      kv.push(1, filled(7));
      CHECK(test::agree(refused));
      CHECK(test::all_are(test::stored(kv, 1), 7 * pushed));
      CHECK(test::all_are(test::stored(kv, 2), 20));
    }
    kv.set_updater(nullptr);
    kv.push(2, filled(3));
    CHECK(test::all_are(test::stored(kv, 2), 3 * pushed));
  });
}
