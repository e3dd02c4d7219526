// SPDX-License-Identifier: Apache-2.0
// What a store says about itself, and its calls without keys.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/store_fixture.hpp"

using test::filled;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::Tensor;

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
  for (const char* alias : {"dist_sync", "dist_device_sync", "nccl"}) {
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
