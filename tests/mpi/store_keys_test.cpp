// SPDX-License-Identifier: Apache-2.0
// Keys of a store: of one kind, compared as 64 bits, grouped and ordered.
#include <limits>
#include <string>
#include <vector>

#include "tests/mpi/store_fixture.hpp"

using test::filled;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

// Notes the keys in the order of their updates; stored += merged.
tutti::Updater noting_updater(std::vector<Key>& seen) {
  return [&seen](const Key& key, tutti::ConstTensorView merged, tutti::TensorView stored) {
    seen.push_back(key);
    stored += merged;
  };
}

}  // namespace

TEST_CASE("integer keys keep 64 bits: 2^32 + 3 is not 3, and negative keys are keys") {
  test::for_each_type([](KVStore& kv, float pushed) {
    const std::int64_t large = (std::int64_t{1} << 32) + 3;
    const std::vector<std::int64_t> keys = {3, large, -3, std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::int64_t>::min()};
    for (std::size_t i = 0; i < keys.size(); ++i) kv.init(keys[i], filled(static_cast<double>(i)));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      CHECK(test::all_are(test::stored(kv, keys[i]), static_cast<float>(i)));
    }
    kv.push(large, filled(10));
    kv.push(-3, filled(20));
    CHECK(test::all_are(test::stored(kv, 3), 0));
    CHECK(test::all_are(test::stored(kv, large), 10 * pushed));
    CHECK(test::all_are(test::stored(kv, -3), 20 * pushed));
  });
}

TEST_CASE("string keys hold values of their own, of any length and with any bytes") {
  test::for_each_type([](KVStore& kv, float pushed) {
    const std::vector<std::string> keys = {
        "fc1.weight",      "fc1.bias", "", std::string(5000, 'x'), std::string("nul\0inside", 10),
        "gewicht.\xc3\xa4"};
    for (std::size_t i = 0; i < keys.size(); ++i) kv.init(keys[i], filled(static_cast<double>(i)));
    for (const std::string& key : keys) kv.push(key, filled(static_cast<double>(key.size())));
    for (const std::string& key : keys) {
      CHECK(test::all_are(test::stored(kv, key), static_cast<float>(key.size()) * pushed));
    }
  });
}

TEST_CASE("a string key in a store of integer keys is refused and changes nothing") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(2));
    CHECK(test::throws_on_all([&] { kv.init("weight", filled(1)); }, ErrorCode::invalid_argument,
                              {"weight"}));
    CHECK(test::throws_on_all([&] { kv.push("weight", filled(1)); }, ErrorCode::invalid_argument,
                              {"weight"}));
    CHECK(test::throws_on_all(
        [&] {
          kv.push({Key(3), Key("weight")}, {filled(1), filled(1)});
        },
        ErrorCode::invalid_argument, {"weight"}));
    CHECK(test::all_are(test::stored(kv, 3), 2));
    kv.init(4, filled(5));
    kv.push(3, filled(1));
    CHECK(test::all_are(test::stored(kv, 3), pushed));
    CHECK(test::all_are(test::stored(kv, 4), 5));
  });
}

TEST_CASE("an integer key in a store of string keys is refused and changes nothing") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init("weight", filled(2));
    CHECK(test::throws_on_all([&] { kv.init(3, filled(1)); }, ErrorCode::invalid_argument, {"3"}));
    CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, ErrorCode::invalid_argument, {"3"}));
    CHECK(test::all_are(test::stored(kv, "weight"), 2));
  });
}

TEST_CASE("a first init with keys of both kinds is refused and fixes no kind") {
  test::for_each_type([](KVStore& kv, float) {
    CHECK(test::throws_on_all(
        [&] {
          kv.init({Key(3), Key("weight")}, {filled(1), filled(1)});
        },
        ErrorCode::invalid_argument, {"weight"}));
    kv.init("weight", filled(2));
    CHECK(test::all_are(test::stored(kv, "weight"), 2));
  });
}

TEST_CASE(
    "repeated keys in one push are one group: [k0, k1, k1] of [a, b, c] is k0 = a, k1 = b + c") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(0), filled(0)});
    kv.push({1, 2, 2}, {filled(10), filled(200), filled(3000)});
    CHECK(test::all_are(test::stored(kv, 1), 10 * pushed));
    CHECK(test::all_are(test::stored(kv, 2), 3200 * pushed));
  });
}

TEST_CASE("the updater runs once per distinct key, also for keys that occur again and lists") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(0), filled(0)});
    std::vector<Key> seen;
    kv.set_updater(noting_updater(seen));
    std::vector<std::vector<Tensor>> lists(3);
    for (auto& list : lists) {
      for (int i = 0; i < 2; ++i) list.push_back(filled(1));
    }
    kv.push({2, 1, 2}, lists);
    CHECK(test::agree(seen == std::vector<Key>{1, 2}));
    CHECK(test::all_are(test::stored(kv, 1), 2 * pushed));
    CHECK(test::all_are(test::stored(kv, 2), 4 * pushed));
  });
}

TEST_CASE("integer keys of one push are updated in ascending order, whatever the order given") {
  test::for_each_type([](KVStore& kv, float) {
    const std::vector<std::int64_t> keys = {9, -4, std::int64_t{1} << 40, 7, 5};
    for (const std::int64_t key : keys) kv.init(key, filled(0));
    std::vector<Key> seen;
    kv.set_updater(noting_updater(seen));
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(filled(1));
    kv.push(keys, values);
    CHECK(test::agree(seen == std::vector<Key>{-4, 5, 7, 9, std::int64_t{1} << 40}));
  });
}

TEST_CASE("string keys of one push are updated in the order of their init") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init({"zebra", "ant"}, {filled(0), filled(0)});
    kv.init("monkey", filled(0));
    std::vector<Key> seen;
    kv.set_updater(noting_updater(seen));
    kv.push({"ant", "monkey", "zebra"}, {filled(1), filled(1), filled(1)});
    CHECK(test::agree(seen == std::vector<Key>{"zebra", "ant", "monkey"}));
  });
}

TEST_CASE("a call with an unknown key is refused with the key's name and changes nothing") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(2));
    Tensor out = filled(0);
    const auto code = ErrorCode::invalid_argument;
    CHECK(test::throws_on_all([&] { kv.push(41, filled(1)); }, code, {"41"}));
    CHECK(test::throws_on_all([&] { kv.push({3, 41}, {filled(1), filled(1)}); }, code, {"41"}));
    CHECK(test::throws_on_all([&] { kv.pull(41, out); }, code, {"41"}));
    CHECK(test::throws_on_all([&] { (void)kv.view(41); }, code, {"41"}));
    CHECK(test::throws_on_all([&] { kv.pushpull(41, filled(1), out); }, code, {"41"}));
    CHECK(test::all_are(test::stored(kv, 3), 2));
    CHECK(test::all_are(out, 0));
  });
}

TEST_CASE("an empty key list does nothing") {
  test::for_each_type([](KVStore& kv, float) {
    kv.init(3, filled(2));
    int updates = 0;
    kv.set_updater([&](const Key&, tutti::ConstTensorView, tutti::TensorView) { ++updates; });
    const std::vector<Key> no_keys;
    std::vector<Tensor> no_tensors;
    kv.init(no_keys, no_tensors);
    kv.push(no_keys, no_tensors);
    kv.pull(no_keys, no_tensors);
    kv.pushpull(no_keys, no_tensors);
    kv.pushpull(no_keys, no_tensors, no_tensors);
    CHECK(test::agree(updates == 0));
    CHECK(test::all_are(test::stored(kv, 3), 2));
  });
}

TEST_CASE("keys and values of different number are refused with both numbers") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init({1, 2}, {filled(0), filled(0)});
    const auto code = ErrorCode::invalid_argument;
    CHECK(test::throws_on_all(
        [&] {
          kv.push({1, 2}, {filled(1), filled(1), filled(1)});
        },
        code, {"2", "3"}));
    CHECK(test::throws_on_all([&] { kv.push({1, 2}, {filled(1)}); }, code, {"2", "1"}));
    const std::vector<Tensor> none;
    CHECK(test::throws_on_all([&] { kv.push(1, none); }, code, {"1"}));
    CHECK(test::all_are(test::stored(kv, 1), 0));
    kv.push(1, filled(1));
    CHECK(test::all_are(test::stored(kv, 1), pushed));
  });
}
