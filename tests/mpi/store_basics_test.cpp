// SPDX-License-Identifier: Apache-2.0
// Ranks and barriers, keys and lists of them, pushpull.
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

using test::filled;
using tutti::ConstTensorView;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::ReduceOp;
using tutti::Shape;
using tutti::Tensor;

// --- ranks and barriers --------------------------------------------------------------------------

// What a store says about itself, and its calls without keys.

TEST_CASE("dist has the job's rank and number of workers, local and device are one worker") {
  KVStore kv = test::dist();
  CHECK(test::agree(kv.rank() == test::rank() && kv.num_workers() == test::size()));
  for (const char* type : {"local", "device"}) {
    KVStore alone = KVStore::create(type, test::settings());
    CHECK(test::agree(alone.rank() == 0 && alone.num_workers() == 1));
  }
}

TEST_CASE("type is the name it was created with, and dist for the aliases of dist") {
  for (const char* type : {"local", "device", "dist"}) {
    CHECK(test::agree(KVStore::create(type, test::settings()).type() == type));
  }
  for (const char* alias : {"dist_sync", "dist_device_sync", "dist_sync_device", "nccl"}) {
    CAPTURE(std::string(alias));
    KVStore kv = KVStore::create(alias, test::settings());
    CHECK(test::agree(kv.type() == "dist" && kv.num_workers() == test::size()));
  }
}

TEST_CASE("upper and lower case of a type are the same") {
  CHECK(test::agree(KVStore::create("Local", test::settings()).type() == "local"));
  for (const char* name : {"Dist", "DIST", "Dist_Sync", "NCCL"}) {
    CAPTURE(std::string(name));
    KVStore kv = KVStore::create(name, test::settings());
    CHECK(test::agree(kv.type() == "dist" && kv.num_workers() == test::size()));
  }
}

TEST_CASE("an unknown type is an error that lists the types") {
  for (const char* type : {"dits", "", "Dits", "dist "}) {
    CHECK(test::throws_on_all([&] { (void)KVStore::create(type, test::settings()); },
                              ErrorCode::invalid_argument, {type, "local", "device", "dist"}));
  }
}

TEST_CASE("a store over a communicator of the program's is a dist store") {
  tutti::Communicator world = tutti::Communicator::world(test::settings());
  KVStore kv = KVStore::create(world);
  CHECK(test::agree(kv.type() == "dist" && kv.num_workers() == test::size()));
  kv.init(3, filled(0));
  kv.push(3, filled(test::one_plus_rank()));
  CHECK(test::all_are(test::stored(kv, 3), test::sum_of_ranks()));
  Tensor a = filled(test::one_plus_rank());
  world.allreduce(a);
  CHECK(test::all_are(a, test::sum_of_ranks()));
}

TEST_CASE("a store is capable of running an optimizer and says so") {
  test::for_each_type([](KVStore& kv, float) {
    CHECK(test::agree(kv.is_capable("optimizer")));
    CHECK(test::agree(!kv.is_capable("telepathy")));
  });
}

TEST_CASE("barrier returns on no rank before every rank has called it") {
  KVStore kv = test::dist();
  for (int late = 0; late < test::size(); ++late) {
    if (test::rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto seconds = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
    const double came = seconds();
    kv.barrier();
    const double left = seconds();
    CHECK(test::agree(left >= test::largest(came)));
  }
}

TEST_CASE("barrier of local and device waits for nobody") {
  for (const char* type : {"local", "device"}) {
    KVStore kv = KVStore::create(type, test::settings());
    if (test::rank() == 0) kv.barrier();
  }
  CHECK(test::agree(true));
}

TEST_CASE("agree runs its body on every rank, and an error on one rank is every rank's error") {
  test::for_each_type([](KVStore& kv, float) {
    int runs = 0;
    kv.agree([&] { ++runs; });
    CHECK(test::agree(runs == 1));
    const int failing = kv.num_workers() - 1;
    CHECK(test::throws_on_all(
        [&] {
          kv.agree([&] {
            if (kv.rank() == failing) throw tutti::Error(ErrorCode::io, "no such file: gone.txt");
          });
        },
        ErrorCode::io, {"no such file: gone.txt"}));
    kv.init(3, filled(1));
    CHECK(test::all_are(test::stored(kv, 3), 1));
  });
}

TEST_CASE("two stores hold different values under one key and may be used in turn") {
  KVStore one = test::dist();
  KVStore two = test::dist();
  KVStore alone = KVStore::create("local", test::settings());
  one.init(3, filled(1));
  two.init(3, filled(2, {5}));
  alone.init(3, filled(3));
  for (int i = 0; i < 20; ++i) {
    one.push(3, filled(i));
    alone.push(3, filled(i + 7));
    two.push(3, filled(2 * i, {5}));
  }
  const auto ranks = static_cast<float>(test::size());
  CHECK(test::all_are(test::stored(one, 3), 19 * ranks));
  CHECK(test::all_are(test::stored(two, 3), 38 * ranks));
  CHECK(test::all_are(test::stored(alone, 3), 26));
}

TEST_CASE("a moved store works on under its new name") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init(3, filled(1));
    KVStore moved = std::move(kv);
    moved.push(3, filled(4));
    CHECK(test::all_are(test::stored(moved, 3), 4 * pushed));
    kv = std::move(moved);
    kv.push(3, filled(5));
    CHECK(test::all_are(test::stored(kv, 3), 5 * pushed));
  });
}

TEST_CASE("stores may be made and dropped many times") {
  for (int i = 0; i < 50; ++i) {
    KVStore kv = test::dist();
    kv.init(3, filled(i, {5000}));
    REQUIRE(test::all_are(kv.view(3), static_cast<float>(i)));
  }
}

// --- keys ----------------------------------------------------------------------------------------

// Keys of a store: of one kind, compared as 64 bits, grouped and ordered.

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

// --- pushpull ------------------------------------------------------------------------------------

// pushpull of values so large that the reduction writes the outputs itself.

namespace {

const Shape kShape{70001};  // above the size from which outputs are written directly

Tensor pushed(std::uint64_t salt) {
  return test::random_tensor(kShape, DType::float32, test::rank(), salt);
}

Tensor expected(std::uint64_t salt) {
  return test::reduced_random(ReduceOp::sum, kShape, DType::float32, test::size(), salt);
}

/// A store whose key k holds zeros, k = 0 .. keys - 1.
KVStore store_of(int keys) {
  KVStore kv = test::dist();
  for (int key = 0; key < keys; ++key) kv.init(key, Tensor::zeros(kShape));
  return kv;
}

bool holds(const KVStore& kv, int key, const Tensor& value) {
  return test::same_bits(test::stored(kv, key), value);
}

Tensor in_store(KVStore& kv, const ConstTensorView& value) {
  Tensor tensor = kv.allocate(kShape);
  tutti::TensorView(tensor).copy_from(value);
  return tensor;
}

}  // namespace

TEST_CASE("pushpull fills outputs in the store's memory, in ordinary memory, and in both") {
  for (const bool first_shared : {true, false}) {
    for (const bool second_shared : {true, test::rank() % 2 == 0, false}) {
      KVStore kv = store_of(2);
      const Tensor a = first_shared ? in_store(kv, pushed(1)) : pushed(1);
      const Tensor b = second_shared ? in_store(kv, pushed(2)) : pushed(2);
      Tensor a_out = second_shared ? kv.allocate(kShape) : Tensor::zeros(kShape);
      Tensor b_out = first_shared ? kv.allocate(kShape) : Tensor::zeros(kShape);
      kv.pushpull({1, 0}, {a, b}, {a_out, b_out});
      CHECK(test::agree(test::same_bits(a_out, expected(1))));
      CHECK(test::agree(test::same_bits(b_out, expected(2))));
      CHECK(test::agree(holds(kv, 1, expected(1))));
      CHECK(test::agree(holds(kv, 0, expected(2))));
      CHECK(test::agree(test::same_bits(a, pushed(1))));
    }
  }
}

TEST_CASE("pushpull over the values, and into several outputs of a key") {
  KVStore kv = store_of(2);
  Tensor value = in_store(kv, pushed(3));
  kv.pushpull(0, value);
  CHECK(test::agree(test::same_bits(value, expected(3))));
  Tensor more = kv.allocate(kShape);
  Tensor third = Tensor::zeros(kShape);
  tutti::TensorView(value).copy_from(pushed(4));
  kv.pushpull(1, value, {value, more, third});
  CHECK(test::agree(test::same_bits(value, expected(4))));
  CHECK(test::agree(test::same_bits(more, expected(4))));
  CHECK(test::agree(test::same_bits(third, expected(4))));
  CHECK(test::agree(holds(kv, 1, expected(4))));
}

TEST_CASE("an output that is another key's value is written after that value was summed") {
  KVStore kv = store_of(2);
  Tensor a = in_store(kv, pushed(5));
  Tensor b = in_store(kv, pushed(6));
  kv.pushpull({0, 1}, {a, b}, {b, a});
  CHECK(test::agree(test::same_bits(b, expected(5))));
  CHECK(test::agree(test::same_bits(a, expected(6))));
  CHECK(test::agree(holds(kv, 0, expected(5))));
  CHECK(test::agree(holds(kv, 1, expected(6))));
}

TEST_CASE("one output of two keys has the value of the last") {
  KVStore kv = store_of(2);
  const Tensor a = in_store(kv, pushed(7));
  const Tensor b = in_store(kv, pushed(8));
  Tensor out = kv.allocate(kShape);
  kv.pushpull({0, 1}, {a, b}, {out, out});
  CHECK(test::agree(test::same_bits(out, expected(8))));
}

TEST_CASE("an output that one rank alone gives is filled, too") {
  KVStore kv = store_of(1);
  const Tensor value = in_store(kv, pushed(9));
  Tensor out = test::rank() == 0 ? kv.allocate(kShape) : Tensor::zeros(kShape);
  kv.pushpull(0, value, out);
  CHECK(test::agree(test::same_bits(out, expected(9))));
  CHECK(test::agree(holds(kv, 0, expected(9))));
}

TEST_CASE("with an updater, outputs get what it has stored") {
  KVStore kv = store_of(1);
  kv.set_updater(
      [](const Key&, ConstTensorView merged, tutti::TensorView stored) { stored += 2 * merged; });
  const Tensor value = Tensor::full(kShape, test::one_plus_rank());
  Tensor out = kv.allocate(kShape);
  kv.pushpull(0, value, out);
  CHECK(test::all_are(out, 2 * test::sum_of_ranks()));
}
