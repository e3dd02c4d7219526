// SPDX-License-Identifier: Apache-2.0
// Pushing one list of keys again and again, as training does: what a push remembers of the last.
#include <vector>

#include "tests/mpi/store_fixture.hpp"

using test::all_are;
using test::filled;
using test::stored;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

float ranks() { return static_cast<float>(test::size()); }

KVStore store_of(const std::vector<Key>& keys) {
  KVStore kv = test::dist();
  for (const Key& key : keys) kv.init(key, filled(0));
  return kv;
}

}  // namespace

TEST_CASE("the same keys with other values, other tensors and in another order") {
  for (const auto& keys : {std::vector<Key>{9, 2, 5}, std::vector<Key>{"c", "a", "b"}}) {
    KVStore kv = store_of(keys);
    std::vector<Tensor> own;
    for (int i = 0; i < 3; ++i) own.push_back(kv.allocate({2, 3}));
    for (float step = 1; step < 5; ++step) {
      for (std::size_t i = 0; i < 3; ++i) own[i].fill(step * static_cast<float>(i + 1));
      kv.push(keys, own);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(all_are(stored(kv, keys[i]), ranks() * step * static_cast<float>(i + 1)));
      }
      kv.push(keys, {filled(step), filled(10 * step), filled(100 * step)});
      CHECK(all_are(stored(kv, keys[0]), ranks() * step));
      CHECK(all_are(stored(kv, keys[2]), ranks() * 100 * step));
      kv.push({keys[2], keys[0], keys[1]}, {filled(7), filled(8), filled(9)});
      CHECK(all_are(stored(kv, keys[2]), ranks() * 7));
      CHECK(all_are(stored(kv, keys[0]), ranks() * 8));
      CHECK(all_are(stored(kv, keys[1]), ranks() * 9));
    }
  }
}

TEST_CASE("the same keys with several values, with a key twice, and with one value again") {
  KVStore kv = store_of({1, 2});
  for (int round = 0; round < 3; ++round) {
    kv.push({1, 2}, {filled(1), filled(2)});
    CHECK(all_are(stored(kv, 2), ranks() * 2));
    kv.push({1, 2}, {{filled(1), filled(4)}, {filled(2), filled(8)}});
    CHECK(all_are(stored(kv, 1), ranks() * 5));
    CHECK(all_are(stored(kv, 2), ranks() * 10));
    kv.push({1, 2, 1}, {filled(1), filled(2), filled(3)});
    CHECK(all_are(stored(kv, 1), ranks() * 4));
    kv.push(std::vector<Key>(), std::vector<tutti::ConstTensorView>());  // nothing again
    CHECK(all_are(stored(kv, 1), ranks() * 4));
  }
}

TEST_CASE("no key at all after a key twice is nothing") {
  KVStore kv = store_of({1, 2});
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1}));
  kv.push({1, 1}, {filled(1), filled(3)});
  kv.push(std::vector<Key>(), std::vector<tutti::ConstTensorView>());
  CHECK(all_are(stored(kv, 1), -4 * ranks()));
}

TEST_CASE("a value that has become another key's replica is read before that is written") {
  KVStore kv = store_of({1, 2});
  kv.push({1, 2}, {filled(3), filled(4)});
  for (int round = 0; round < 2; ++round) {  // they change places, times the number of ranks
    const Tensor first = stored(kv, 1);
    const Tensor second = stored(kv, 2);
    kv.push({1, 2}, {kv.view(2), kv.view(1)});
    CHECK(all_are(stored(kv, 1), ranks() * second.values<float>()[0]));
    CHECK(all_are(stored(kv, 2), ranks() * first.values<float>()[0]));
    kv.init(10 + round, filled(1));
  }
}

TEST_CASE("a value that does not fit is refused the second time, too, and the next push is right") {
  KVStore kv = store_of({1, 2});
  for (int round = 0; round < 2; ++round) {
    kv.push({1, 2}, {filled(1), filled(2)});
    CHECK(test::throws_on_all(
        [&] {
          kv.push({1, 2}, {filled(1), filled(2, {3})});
        },
        ErrorCode::invalid_argument, {"key 2", "(3)", "(2, 3)"}));
    CHECK(test::throws_on_all(
        [&] {
          kv.push({1, 2}, {filled(1), tutti::view<float>(nullptr, {2, 3})});
        },
        ErrorCode::invalid_argument, {"key 2", "without memory"}));
    CHECK(all_are(stored(kv, 2), ranks() * 2));
  }
  kv.push({1, 2}, {filled(5), filled(6)});
  CHECK(all_are(stored(kv, 1), ranks() * 5));
  CHECK(all_are(stored(kv, 2), ranks() * 6));
}

TEST_CASE("an init between two pushes of the same keys") {
  KVStore kv = store_of({1, 2});
  for (int key = 3; key < 40; ++key) {  // so many that the table of keys moves
    kv.push({1, 2}, {filled(key), filled(2 * key)});
    kv.init(key, filled(0));
    CHECK(all_are(stored(kv, 1), ranks() * static_cast<float>(key)));
    CHECK(all_are(stored(kv, 2), ranks() * static_cast<float>(2 * key)));
  }
}

TEST_CASE("another optimizer between two pushes of the same keys") {
  KVStore kv = store_of({1, 2});
  for (const double rate : {1.0, 0.5}) {
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = rate}));
    const float before = stored(kv, 2).values<float>()[0];
    kv.push({1, 2}, {filled(1), filled(2)});
    kv.push({1, 2}, {filled(1), filled(2)});
    CHECK(all_are(stored(kv, 2), before - 4 * static_cast<float>(rate) * ranks()));
  }
}
