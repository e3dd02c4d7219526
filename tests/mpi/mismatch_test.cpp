// SPDX-License-Identifier: Apache-2.0
// Calls that differ between ranks are errors on all, and the next call works.
#include <string>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using test::filled;
using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::ReduceOp;
using tutti::Tensor;

// --- of a store ----------------------------------------------------------------------------------

// Calls that are wrong on one rank, or differ between ranks: an error on every rank that says
// where, and a store that works on as if the call had not been.

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr auto kMismatch = ErrorCode::mismatch;

bool odd() { return test::rank() % 2 == 1; }
std::string name_of(int rank) { return "rank " + std::to_string(rank); }
std::string last() { return name_of(test::size() - 1); }

/// The keys 3 and 5 hold what they held, and can be pushed, pulled and initialised beside.
void check_usable(KVStore& kv, test::Place where = test::Place::current()) {
  CHECK(test::all_are(test::stored(kv, 3), 2, where));
  CHECK(test::all_are(test::stored(kv, 5), 4, where));
  for (const int key : {3, 5}) {
    const auto before = static_cast<double>(kv.view(key).values<float>()[0]);
    kv.push(key, filled(1 + test::rank()));
    CHECK(test::all_are(test::stored(kv, key), test::sum_of_ranks(), where));
    kv.push(key, filled(test::rank() == 0 ? before : 0));
    CHECK(test::all_are(test::stored(kv, key), static_cast<float>(before), where));
  }
}

KVStore store_with_keys() {
  KVStore kv = test::dist();
  kv.init({3, 5}, {filled(2), filled(4)});
  return kv;
}

}  // namespace

TEST_CASE("a push of another shape on one rank is refused on all, naming rank, key and shapes") {
  KVStore kv = store_with_keys();
  for (int wrong = 0; wrong < test::size(); ++wrong) {
    const tutti::Shape shape = test::rank() == wrong ? tutti::Shape{3, 2} : tutti::Shape{2, 3};
    CHECK(test::throws_on_all([&] { kv.push(3, filled(1, shape)); }, kInvalid,
                              {name_of(wrong), "key 3", "(2, 3)", "(3, 2)"}));
    check_usable(kv);
  }
}

TEST_CASE("a push of another size on one rank is refused on all, also of large tensors") {
  KVStore kv = store_with_keys();
  const std::int64_t count = 500000;
  kv.init(7, filled(1, {count}));
  CHECK(test::throws_on_all([&] { kv.push(7, filled(1, {test::is_last() ? count - 1 : count})); },
                            kInvalid, {last(), "key 7", "(500000)", "(499999)"}));
  check_usable(kv);
  kv.push(7, filled(1, {count}));
  CHECK(test::all_are(kv.view(7), static_cast<float>(test::size())));
}

TEST_CASE("a push of another dtype on one rank is refused on all, naming rank, key and dtypes") {
  KVStore kv = store_with_keys();
  const DType dtype = test::is_last() ? DType::int32 : DType::float32;
  CHECK(test::throws_on_all(
      [&] {
        kv.push(3, Tensor::ones({2, 3}, dtype));
      },
      kInvalid, {last(), "key 3", "float32", "int32"}));
  check_usable(kv);
}

TEST_CASE("a push of an unknown key on one rank is refused on all, naming rank and key") {
  KVStore kv = store_with_keys();
  CHECK(test::throws_on_all([&] { kv.push(test::is_last() ? 41 : 3, filled(1)); }, kInvalid,
                            {last(), "key 41"}));
  check_usable(kv);
}

TEST_CASE("one wrong key of a list on one rank refuses the whole list on all ranks") {
  KVStore kv = store_with_keys();
  const tutti::Shape shape = test::is_last() ? tutti::Shape{6} : tutti::Shape{2, 3};
  CHECK(test::throws_on_all(
      [&] {
        kv.push({3, 5}, {filled(1), filled(1, shape)});
      },
      kInvalid, {last(), "key 5", "(2, 3)", "(6)"}));
  check_usable(kv);
}

TEST_CASE("pushes of different keys on different ranks are a mismatch that names ranks and keys") {
  KVStore kv = store_with_keys();
  CHECK(test::throws_on_all([&] { kv.push(odd() ? 5 : 3, filled(1)); }, kMismatch,
                            {"rank", "3", "5"}));
  check_usable(kv);
}

TEST_CASE("pushes in different order on different ranks are a mismatch at each, then work again") {
  KVStore kv = store_with_keys();
  for (const bool flip : {false, true}) {
    CHECK(test::throws_on_all([&] { kv.push(odd() == flip ? 5 : 3, filled(1)); }, kMismatch,
                              {"rank", "3", "5"}));
  }
  check_usable(kv);
}

TEST_CASE("a push on one rank against a barrier on the others is a mismatch that says so") {
  KVStore kv = store_with_keys();
  for (const bool flip : {false, true}) {
    CHECK(test::throws_on_all(
        [&] {
          if (test::is_last() != flip) {
            kv.push(3, filled(1));
          } else {
            kv.barrier();
          }
        },
        kMismatch, {"rank", "push", "barrier"}));
    check_usable(kv);
  }
}

TEST_CASE("a push on one rank against an init or a pushpull of another key is a mismatch") {
  KVStore kv = store_with_keys();
  CHECK(test::throws_on_all(
      [&] {
        if (test::is_last()) {
          kv.push(3, filled(1));
        } else {
          kv.init(9, filled(1));
        }
      },
      kMismatch, {"rank", "push", "init"}));
  check_usable(kv);
  kv.init(9, filled(8));
  CHECK(test::all_are(test::stored(kv, 9), 8));
}

TEST_CASE("push lists of different length are a mismatch") {
  KVStore kv = store_with_keys();
  const std::vector<Key> keys = test::is_last() ? std::vector<Key>{3} : std::vector<Key>{3, 5};
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(filled(1));
  CHECK(test::throws_on_all([&] { kv.push(keys, values); }, kMismatch, {"rank"}));
  check_usable(kv);
}

TEST_CASE("init of another shape or dtype on one rank is a mismatch and stores nothing anywhere") {
  KVStore kv = store_with_keys();
  const tutti::Shape shape = test::is_last() ? tutti::Shape{3, 2} : tutti::Shape{2, 3};
  CHECK(test::throws_on_all([&] { kv.init(7, filled(1, shape)); }, kMismatch, {"rank", "7"}));
  const DType dtype = test::is_last() ? DType::int32 : DType::float32;  // both have four bytes
  CHECK(test::throws_on_all(
      [&] {
        kv.init(7, Tensor::ones({2, 3}, dtype));
      },
      kMismatch, {"rank", "7"}));
  CHECK(test::throws_on_all([&] { (void)kv.view(7); }, kInvalid, {"7"}));
  kv.init(7, filled(6));
  CHECK(test::all_are(test::stored(kv, 7), 6));
  check_usable(kv);
}

TEST_CASE("init of different keys is a mismatch and stores nothing anywhere") {
  KVStore kv = store_with_keys();
  CHECK(test::throws_on_all([&] { kv.init(test::is_last() ? 7 : 8, filled(1)); }, kMismatch,
                            {"rank", "7", "8"}));
  kv.init({7, 8}, {filled(70), filled(80)});
  CHECK(test::all_are(test::stored(kv, 7), 70));
  CHECK(test::all_are(test::stored(kv, 8), 80));
}

TEST_CASE("a double init on one rank alone is refused on all") {
  KVStore kv = store_with_keys();
  CHECK(test::throws_on_all([&] { kv.init(test::is_last() ? 3 : 7, filled(1)); }, kInvalid,
                            {last(), "key 3"}));
  check_usable(kv);
}

TEST_CASE("string keys that are inited in different order are an error and never swap values") {
  KVStore kv = test::dist();
  for (const bool flip : {false, true}) {
    const char* mine = odd() == flip ? "weight" : "bias";
    CHECK(test::throws_on_all([&] { kv.init(mine, filled(1)); }, kMismatch,
                              {"rank", "weight", "bias"}));
  }
  const std::vector<Key> keys =
      odd() ? std::vector<Key>{"weight", "bias"} : std::vector<Key>{"bias", "weight"};
  CHECK(test::throws_on_all([&] { kv.init(keys, {filled(1), filled(1)}); }, kMismatch, {"rank"}));
  kv.init("weight", filled(1));
  kv.init("bias", filled(2));
  kv.push("weight", filled(3));
  CHECK(test::all_are(test::stored(kv, "weight"), 3 * static_cast<float>(test::size())));
  CHECK(test::all_are(test::stored(kv, "bias"), 2));
}

TEST_CASE("a learning rate that was changed on one rank only is a mismatch at the next push") {
  KVStore kv = store_with_keys();
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.5}));
  if (test::is_last()) kv.optimizer().set_learning_rate(0.25);
  CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, kMismatch,
                            {"rank", "sgd", "0.5", "0.25"}));
  CHECK(test::all_are(test::stored(kv, 3), 2));
  kv.optimizer().set_learning_rate(0.25);
  kv.push(3, filled(4));
  CHECK(test::all_near(test::stored(kv, 3), 2 - static_cast<float>(test::size())));
}

TEST_CASE("an optimizer, a multiplier or an updater on one rank only is a mismatch") {
  KVStore kv = store_with_keys();
  if (test::is_last()) kv.set_optimizer(tutti::optimizer::sgd());
  CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, kMismatch, {"rank"}));
  kv.set_optimizer(tutti::optimizer::sgd());
  if (test::is_last()) kv.optimizer().set_lr_mult(3, 2.0);
  CHECK(test::throws_on_all(
      [&] { kv.push(3, filled(1)); }, kMismatch,
      {"all ranks made the same call (push of key 3", "other arguments than it shows"}));
  kv.optimizer().set_lr_mult(3, 2.0);
  if (test::is_last()) kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {});
  CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, kMismatch, {"rank"}));
  kv.set_updater(nullptr);
  check_usable(kv);
}

TEST_CASE("options or a schedule that differ on one rank are a mismatch that shows both") {
  KVStore kv = store_with_keys();
  const auto check = [&](const char* most, const char* last,
                         const std::vector<std::string>& words) {
    kv.set_optimizer(tutti::optimizer::create(test::is_last() ? last : most));
    CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, kMismatch, words));
  };
  check("sgd,momentum=0.5", "sgd,momentum=0.25", {"momentum=0.5", "momentum=0.25"});
  check("adam", "adamax", {"with adam,", "with adamax,"});
  check("lamb", "lamb,bias_correction=false", {"bias_correction=false"});
  check("nag,schedule=cosine,max_update=10", "nag,schedule=cosine,max_update=11",
        {"schedule=cosine,max_update=10;", "max_update=11"});
  kv.set_updater(nullptr);
  check_usable(kv);
}

TEST_CASE("settings that differ on one rank are refused on all when a store is created") {
  tutti::Settings settings = test::settings();
  if (test::is_last()) settings.chunk_bytes = 123456;
  CHECK(test::throws_on_all(
      [&] { (void)KVStore::create("dist", settings); }, kInvalid,
      {"rank 0", last(), "settings", "TUTTI_CHUNK_BYTES=123456", "TUTTI_CHUNK_BYTES=256K"}));
  KVStore kv = store_with_keys();
  check_usable(kv);
}

TEST_CASE("a setting that one rank alone cannot read is an error on all of them") {
  tutti::Settings settings = test::settings();
  if (test::is_last()) settings.environment_error = "TUTTI_TIMEOUT=abc: expected a number";
  CHECK(test::throws_on_all([&] { (void)KVStore::create("dist", settings); }, kInvalid,
                            {last() + ": TUTTI_TIMEOUT=abc: expected a number"}));
  settings = test::settings();
  if (test::is_last()) settings.chunk_bytes = 100;
  CHECK(test::throws_on_all([&] { (void)KVStore::create("dist", settings); }, kInvalid,
                            {last() + ": TUTTI_CHUNK_BYTES=100: expected 4K to 16M"}));
  KVStore kv = store_with_keys();
  check_usable(kv);
}

TEST_CASE("a file for reports that cannot be written is an error before the first call") {
  const auto check = [](auto tutti::Settings::*member, const char* variable) {
    tutti::Settings settings = test::settings();
    settings.*member = "/nowhere/report.txt";
    CHECK(test::throws_on_all([&] { (void)KVStore::create("dist", settings); }, ErrorCode::io,
                              {"rank 0: ", variable, "/nowhere/", "No such file"}));
  };
  check(&tutti::Settings::statistics, "TUTTI_STATISTICS: /nowhere/report");
  check(&tutti::Settings::prometheus, "TUTTI_PROMETHEUS: /nowhere/report");
  check(&tutti::Settings::trace, "TUTTI_TRACE: ");
  KVStore kv = store_with_keys();
  check_usable(kv);
}

TEST_CASE("a hundred refused calls between good ones leave the store in step") {
  KVStore kv = store_with_keys();
  for (int i = 0; i < 100; ++i) {
    const int wrong = i % test::size();
    const tutti::Shape shape = test::rank() == wrong ? tutti::Shape{1} : tutti::Shape{2, 3};
    REQUIRE(test::throws_on_all([&] { kv.push(3, filled(1, shape)); }, kInvalid, {name_of(wrong)}));
    if (i % 10 == 0) kv.barrier();
  }
  check_usable(kv);
}

namespace {

/// Takes all of this rank's shared memory that can be had.
std::vector<Tensor> fill_arena(KVStore& kv) {
  std::vector<Tensor> taken;
  for (std::int64_t bytes = std::int64_t{1} << 24; bytes > 0;) {
    try {
      taken.push_back(kv.allocate({bytes}, DType::uint8));
    } catch (const tutti::Error&) {
      bytes /= 2;
    }
  }
  return taken;
}

}  // namespace

TEST_CASE("a push that one rank has no memory to announce is refused on all, at once") {
  constexpr int kKeys = 3000;
  tutti::Settings settings = test::settings();
  settings.arena_bytes = std::size_t{64} << 20;
  KVStore kv = KVStore::create("dist", settings);
  std::vector<Key> keys;
  for (int key = 0; key < kKeys; ++key) keys.emplace_back(key);
  std::vector<Tensor> ones;
  for (int key = 0; key < kKeys; ++key) ones.push_back(filled(1, {4}));
  kv.init(keys, ones);
  std::vector<Tensor> taken;
  if (test::rank() == 0) taken = fill_arena(kv);
  CHECK(test::throws_on_all([&] { kv.push(keys, ones); }, ErrorCode::out_of_memory,
                            {"rank 0 ", "push of 3000 keys", "TUTTI_ARENA_BYTES"}));
  taken.clear();
  kv.push(keys, ones);
  CHECK(test::all_are(test::stored(kv, kKeys - 1), static_cast<float>(test::size())));
}

// --- of a communicator ---------------------------------------------------------------------------

// Collectives that are called wrongly: an error on every rank, and a communicator that works on.

namespace {

Communicator new_world() { return Communicator::world(test::settings()); }

void check_usable(Communicator& world, test::Place where = test::Place::current()) {
  Tensor tensor = Tensor::full({300}, test::rank() + 1);
  world.allreduce(tensor);
  const auto sum = static_cast<float>(test::size() * (test::size() + 1) / 2);
  CHECK(test::agree(tensor.values<float>()[299] == sum, where));
}

}  // namespace

TEST_CASE("an output of another shape or dtype is refused with both") {
  Communicator world = new_world();
  const Tensor input = Tensor::ones({2, 3});
  Tensor other_shape = Tensor::ones({3, 2});
  Tensor other_dtype = Tensor::ones({2, 3}, DType::int32);
  const auto code = ErrorCode::invalid_argument;
  CHECK(test::throws_on_all([&] { world.allreduce(input, other_shape); }, code,
                            {"(2, 3)", "(3, 2)"}));
  CHECK(test::throws_on_all([&] { world.allreduce(input, other_dtype); }, code,
                            {"float32", "int32"}));
  check_usable(world);
}

TEST_CASE("an output that is refused on one rank is refused on all, naming the rank") {
  Communicator world = new_world();
  const Tensor input = Tensor::ones({2, 3});
  for (int wrong = 0; wrong < test::size(); ++wrong) {
    Tensor output = Tensor::full(test::rank() == wrong ? tutti::Shape{7} : tutti::Shape{2, 3}, 9);
    CHECK(test::throws_on_all([&] { world.allreduce(input, output); }, ErrorCode::invalid_argument,
                              {"rank " + std::to_string(wrong), "(2, 3)", "(7)"}));
    CHECK(test::agree(output.values<float>()[5] == 9));
    check_usable(world);
  }
}

TEST_CASE("a root that is no rank is refused with the root and the number of ranks") {
  Communicator world = new_world();
  Tensor tensor = Tensor::ones({3});
  for (const int root : {-1, test::size(), 1000}) {
    CHECK(test::throws_on_all([&] { world.broadcast(tensor, root); }, ErrorCode::invalid_argument,
                              {std::to_string(root), "0 to " + std::to_string(test::size() - 1)}));
  }
  check_usable(world);
}

TEST_CASE("another size on one rank is a mismatch on all, small or large, and writes nothing") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::int64_t count : {0, 5, 400, 300000}) {
      Tensor tensor = Tensor::full({test::is_last() ? count + 1 : count}, test::rank());
      CHECK(test::throws_on_all([&] { world.allreduce(tensor); }, ErrorCode::mismatch, {"rank"}));
      const Tensor untouched = Tensor::full(tensor.shape(), test::rank());
      CHECK(test::agree(test::same_bits(tensor, untouched)));
    }
    check_usable(world);
  }
}

TEST_CASE("another dtype, operation or call on one rank is a mismatch on all") {
  Communicator world = new_world();
  const auto code = ErrorCode::mismatch;
  Tensor dtype = Tensor::ones({8}, test::is_last() ? DType::int32 : DType::float32);
  CHECK(test::throws_on_all([&] { world.allreduce(dtype); }, code, {"rank", "int32", "float32"}));
  Tensor tensor = Tensor::ones({8});
  CHECK(test::throws_on_all(
      [&] { world.allreduce(tensor, test::is_last() ? ReduceOp::max : ReduceOp::min); }, code,
      {"rank", "max", "min"}));
  CHECK(test::throws_on_all([&] { test::is_last() ? world.allreduce(tensor) : world.barrier(); },
                            code, {"rank", "allreduce", "barrier"}));
  CHECK(test::throws_on_all(
      [&] { test::is_last() ? world.allreduce(tensor) : world.broadcast(tensor, 0); }, code,
      {"rank", "allreduce", "broadcast"}));
  CHECK(test::throws_on_all([&] { world.broadcast(tensor, test::is_last() ? 1 : 0); }, code,
                            {"rank"}));
  check_usable(world);
}

TEST_CASE("more memory than the arena may have is out_of_memory on the caller, with both sizes") {
  tutti::Settings settings = test::settings();
  settings.arena_bytes = std::size_t{32} << 20;
  Communicator world = Communicator::world(settings);
  CHECK(test::throws_on_all([&] { (void)world.allocate({std::int64_t{1} << 30}); },
                            ErrorCode::out_of_memory, {"4096 MiB", "32 MiB"}));
  check_usable(world);
}
