// SPDX-License-Identifier: Apache-2.0
// Pushes: what arrives, and what the store remembers from one to the next.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

using test::all_are;
using test::filled;
using test::stored;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::ReduceOp;
using tutti::Tensor;

// --- pushes --------------------------------------------------------------------------------------

// What a push stores: the sum over values and ranks, of any dtype, size and kind of memory.

namespace {

bool holds(const KVStore& kv, const Key& key, const Tensor& expected) {
  const Tensor found = test::stored(kv, key);
  return test::same_bits(found, expected) && found.dtype() == expected.dtype() &&
         found.shape() == expected.shape();
}

// Pushes random data that differ between ranks; true if their tree sum is stored.
bool pushes_the_sum(KVStore& kv, const Key& key, tutti::Shape shape, DType dtype) {
  kv.init(key, Tensor::full(shape, 3, dtype));
  kv.push(key, test::random_tensor(shape, dtype, test::rank()));
  return holds(kv, key, test::reduced_random(ReduceOp::sum, shape, dtype, test::size()));
}

}  // namespace

TEST_CASE("a push sums over ranks and never takes a mean") {
  KVStore kv = test::dist();
  kv.init(3, filled(0));
  kv.push(3, filled(test::one_plus_rank()));
  CHECK(test::all_are(test::stored(kv, 3), test::sum_of_ranks()));
}

TEST_CASE("local and device sum nothing over ranks") {
  for (const char* type : {"local", "device"}) {
    KVStore kv = KVStore::create(type, test::settings());
    kv.init(3, filled(0));
    kv.push(3, filled(test::one_plus_rank()));
    CHECK(test::all_are(test::stored(kv, 3), test::one_plus_rank()));
  }
}

TEST_CASE("ASSIGN replaces: two equal pushes leave the same value") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(100));
    for (int i = 0; i < 2; ++i) {
      kv.push(3, filled(5));
      CHECK(test::all_are(test::stored(kv, 3), 5 * pushed));
    }
  });
}

TEST_CASE("every dtype is summed over ranks, float sums in the order of the canonical tree") {
  KVStore kv = test::dist();
  int key = 0;
  for (const DType dtype : test::kDTypes) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    CHECK(test::agree(pushes_the_sum(kv, key++, {7, 11}, dtype)));
  }
}

TEST_CASE("every dtype is summed over a list of values in local stores") {
  for (const char* type : {"local", "device"}) {
    KVStore kv = KVStore::create(type, test::settings());
    int key = 0;
    for (const DType dtype : test::kDTypes) {
      CAPTURE(std::string(tutti::to_string(dtype)));
      kv.init(key, Tensor::zeros({77}, dtype));
      std::vector<Tensor> values;
      for (int i = 0; i < 3; ++i) values.push_back(test::random_tensor({77}, dtype, i));
      kv.push(key, values);
      CHECK(test::agree(holds(kv, key, test::reduced_random(ReduceOp::sum, {77}, dtype, 3))));
      ++key;
    }
  }
}

TEST_CASE("sizes 0, 1, small, odd and large give the sum") {
  KVStore kv = test::dist();
  int key = 0;
  for (const std::int64_t count : {0, 1, 2, 15, 16, 17, 255, 256, 257, 1023, 65537, 3000001}) {
    CAPTURE(count);
    CHECK(test::agree(pushes_the_sum(kv, key++, {count}, DType::float32)));
  }
}

TEST_CASE("a scalar and shapes with up to eight dimensions are stored with their shape") {
  KVStore kv = test::dist();
  CHECK(test::agree(pushes_the_sum(kv, 1, {}, DType::float32)));
  CHECK(test::agree(pushes_the_sum(kv, 2, {2, 1, 3, 1, 2, 1, 1, 5}, DType::float64)));
  CHECK(test::agree(pushes_the_sum(kv, 3, {4, 0, 2}, DType::int32)));
}

TEST_CASE("plain memory, the store's memory, and either on different ranks give equal bits") {
  for (const std::int64_t count : {1, 100, 1023, 300001}) {
    CAPTURE(count);
    KVStore kv = test::dist();
    const tutti::Shape shape = {count};
    const Tensor plain = test::random_tensor(shape, DType::float32, test::rank());
    Tensor own = kv.allocate(shape);
    own.view().copy_from(plain);
    const Tensor expected =
        test::reduced_random(ReduceOp::sum, shape, DType::float32, test::size());
    for (const int users_of_own : {0, 1, 2, 3}) {  // bit 0: even ranks, bit 1: odd ranks
      kv.init(users_of_own, Tensor::zeros(shape));
      const bool use_own = ((users_of_own >> (test::rank() % 2)) & 1) != 0;
      kv.push(users_of_own, use_own ? tutti::ConstTensorView(own.view()) : plain.view());
      CHECK(test::agree(holds(kv, users_of_own, expected)));
    }
  }
}

TEST_CASE("memory from allocate is zero at first, keeps its content and may be pushed again") {
  test::for_each_type([](KVStore& kv, float pushed) {
    Tensor own = kv.allocate({513});
    CHECK(test::all_are(own, 0));
    kv.init(3, own);
    for (const float value : {2.0f, 5.0f}) {
      own.fill(value);
      kv.push(3, own);
      CHECK(test::all_are(own, value));
      CHECK(test::all_are(test::stored(kv, 3), value * pushed));
    }
  });
}

TEST_CASE("a push from part of an allocated tensor and from unaligned memory gives the sum") {
  KVStore kv = test::dist();
  Tensor own = kv.allocate({1000});
  own.view().copy_from(test::random_tensor({1000}, DType::float32, test::rank()));
  kv.init(3, Tensor::zeros({501}));
  kv.push(3, tutti::view(own.values<float>().data() + 3, {501}));
  Tensor expected = Tensor::zeros({501});
  const Tensor whole = test::reduced_random(ReduceOp::sum, {1000}, DType::float32, test::size());
  std::ranges::copy(whole.values<float>().subspan(3, 501), expected.values<float>().begin());
  CHECK(test::agree(holds(kv, 3, expected)));
}

TEST_CASE("a list push of 1000 small keys of different sizes sums each") {
  KVStore kv = test::dist();
  std::vector<Key> keys;
  std::vector<Tensor> zeros;
  std::vector<Tensor> values;
  for (int key = 0; key < 1000; ++key) {
    keys.emplace_back(key);
    zeros.push_back(Tensor::zeros({key % 37}));
    values.push_back(test::random_tensor({key % 37}, DType::float32, test::rank(), key));
  }
  kv.init(keys, zeros);
  for (int repetition = 0; repetition < 3; ++repetition) kv.push(keys, values);
  bool right = true;
  for (int key = 0; key < 1000; ++key) {
    right = right && holds(kv, key,
                           test::reduced_random(ReduceOp::sum, {key % 37}, DType::float32,
                                                test::size(), key));
  }
  CHECK(test::agree(right));
}

TEST_CASE("keys of different dtypes and sizes go in one push, as values and as updates") {
  KVStore kv = test::dist();
  const std::vector<std::int64_t> counts = {1, 300, 70000};
  std::vector<Key> keys;
  std::vector<Tensor> values;
  std::vector<Tensor> expected;
  for (const std::int64_t count : counts) {
    for (const DType dtype : test::kDTypes) {
      keys.emplace_back(static_cast<int>(keys.size()));
      values.push_back(test::random_tensor({count}, dtype, test::rank(), keys.size()));
      expected.push_back(
          test::reduced_random(ReduceOp::sum, {count}, dtype, test::size(), keys.size()));
    }
  }
  kv.init(keys, values);
  kv.push(keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) CHECK(test::agree(holds(kv, keys[i], expected[i])));
  std::map<Key, bool> merged_right;
  kv.set_updater([&](const Key& key, tutti::ConstTensorView merged, tutti::TensorView) {
    merged_right[key] = test::same_bits(merged, expected[static_cast<std::size_t>(key.number())]);
  });
  kv.push(keys, values);
  for (const Key& key : keys) CHECK(test::agree(merged_right[key]));
}

TEST_CASE("ranks may push different numbers of values for a key, and other numbers later") {
  KVStore kv = test::dist();
  kv.init(3, filled(0));
  float expected = 0;
  for (int i = 0; i < test::size(); ++i) expected += static_cast<float>(1 + i % 4);
  std::vector<Tensor> values;
  for (int i = 0; i < 1 + test::rank() % 4; ++i) values.push_back(filled(1));
  kv.push(3, values);
  CHECK(test::all_are(test::stored(kv, 3), expected));
  for (const int count : {1, 5, 2}) {
    values.clear();
    for (int i = 0; i < count; ++i) values.push_back(filled(1));
    kv.push(3, values);
    CHECK(test::all_are(test::stored(kv, 3), static_cast<float>(count * test::size())));
  }
}

TEST_CASE("the caller's buffer is not aliased: changing it after a push changes nothing stored") {
  test::for_each_type([](KVStore& kv, float pushed) {
    Tensor plain = filled(1);
    Tensor own = kv.allocate({2, 3});
    for (Tensor* value : {&plain, &own}) {
      value->fill(1);
      const int key = value == &plain ? 1 : 2;
      kv.init(key, *value);
      value->fill(9);
      CHECK(test::all_are(test::stored(kv, key), 1));
      kv.push(key, *value);
      value->fill(50);
      CHECK(test::all_are(test::stored(kv, key), 9 * pushed));
    }
  });
}

TEST_CASE("a push leaves the values as they were") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, Tensor::zeros({1023}));
    std::vector<Tensor> values;
    for (int i = 0; i < 3; ++i) values.push_back(filled(i, {1023}));
    kv.push(3, values);
    for (int i = 0; i < 3; ++i) CHECK(test::all_are(values[i], static_cast<float>(i)));
  });
}

TEST_CASE("a value may be pushed under several keys, and twice under one") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(0), filled(0)});
    const Tensor value = filled(4);
    kv.push({1, 2, 1}, {value, value, value});
    CHECK(test::all_are(test::stored(kv, 1), 8 * pushed));
    CHECK(test::all_are(test::stored(kv, 2), 4 * pushed));
  });
}

TEST_CASE("a store's own view may be pushed, also under its own key") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(3), filled(5)});
    kv.push(1, kv.view(2));
    CHECK(test::all_are(test::stored(kv, 1), 5 * pushed));
    kv.push(2, kv.view(2));
    CHECK(test::all_are(test::stored(kv, 2), 5 * pushed));
  });
}

TEST_CASE("priority changes no result") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(0), filled(0)});
    kv.push(1, filled(1), -100);
    kv.push({2, 1}, {filled(2), filled(3)}, 1 << 30);
    Tensor out = filled(0);
    kv.pushpull(2, filled(4), out, 7);
    CHECK(test::all_are(test::stored(kv, 1), 3 * pushed));
    CHECK(test::all_are(out, 4 * pushed));
  });
}

TEST_CASE("a thousand pushes in a row keep the ranks' data apart") {
  KVStore kv = test::dist();
  kv.init(3, filled(0));
  bool right = true;
  for (int i = 0; i < 1000; ++i) {
    kv.push(3, filled(i + test::rank()));
    const float expected = static_cast<float>(i * test::size()) +
                           static_cast<float>(test::size() * (test::size() - 1) / 2);
    right = right && kv.view(3).values<float>()[5] == expected;
  }
  CHECK(test::agree(right));
}

// --- repeated pushes -----------------------------------------------------------------------------

// Pushing one list of keys again and again, as training does: what a push remembers of the last.

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
