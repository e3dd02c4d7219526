// SPDX-License-Identifier: Apache-2.0
// What is saved comes back, bit by bit.
#include <map>
#include <string>
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/rows_reference.hpp"

using test::directory_of;
using test::filled;
using test::Rows;
using test::with_folder;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::LoadResult;
using tutti::Tensor;

// --- dense keys ----------------------------------------------------------------------------------

// What is saved is loaded, bit by bit, into any type of store.

namespace {

const std::array kShapes = {tutti::Shape{2, 3}, tutti::Shape{}, tutti::Shape{0, 4}, tutti::Shape{1},
                            tutti::Shape{1000003}};
constexpr std::array kTypes = {DType::float32, DType::int8,     DType::float64, DType::float16,
                               DType::int64,   DType::bfloat16, DType::uint8,   DType::int32};

struct Item {
  Key key;
  Tensor value;
};

/// Every dtype, and sizes from none to more than a chunk.
std::vector<Item> items(bool strings) {
  std::vector<Item> all;
  std::uint64_t number = 0;
  for (const DType dtype : kTypes) {
    for (const tutti::Shape& shape : kShapes) {
      const auto key = static_cast<std::int64_t>((number * 37) % 101) - 20;
      const std::string name = "layer" + std::to_string(key) + "/\"w\" \u00e9";
      all.push_back({strings ? Key(name) : Key(key), test::random_tensor(shape, dtype, 0, number)});
      ++number;
    }
  }
  return all;
}

void init(KVStore& kv, const std::vector<Item>& all) {
  for (const Item& item : all) kv.init(item.key, item.value);
}

bool holds(const KVStore& kv, const std::vector<Item>& all) {
  for (const Item& item : all) {
    const auto found = kv.view(item.key);
    if (found.dtype() != item.value.dtype() || !(found.shape() == item.value.shape())) return false;
    if (!test::same_bits(found, item.value)) return false;
  }
  return true;
}

Tensor gradient(int step) {
  return test::random_tensor({1000}, DType::float32, test::rank(),
                             static_cast<std::uint64_t>(step));
}

void train(KVStore& kv, int first, int last) {
  for (int step = first; step < last; ++step) {
    kv.push("w", gradient(step));
    if (step % 2 == 0) kv.push("v", gradient(step + 1000));
  }
}

void start(KVStore& kv) {
  kv.set_optimizer(tutti::optimizer::adam({.learning_rate = 0.05}));
  kv.init("w", filled(1, {1000}));
  kv.init("v", filled(2, {1000}));
  kv.init("never pushed", filled(3, {5}));
}

}  // namespace

TEST_CASE("every dtype and size comes back with the same bits, into stores with and without keys") {
  for (const bool strings : {false, true}) {
    const std::vector<Item> all = items(strings);
    with_folder([&](const test::fs::path& folder) {
      test::for_each_type([&](KVStore& kv, float) {
        const auto directory = directory_of(kv, folder);
        init(kv, all);
        kv.save(directory, {{"epoch", "3"}, {"seed", "7\n\"\u00e9"}});

        for (const Item& item : all) kv.push(item.key, item.value);
        LoadResult result = kv.load(directory);
        CHECK(test::agree(holds(kv, all)));
        CHECK(test::agree(result.generation == 1 && result.damaged.empty()));
        CHECK(test::agree(result.metadata ==
                          tutti::Metadata{{"epoch", "3"}, {"seed", "7\n\"\u00e9"}}));

        KVStore other = KVStore::create(kv.type(), test::settings());
        result = other.load(directory);
        CHECK(test::agree(holds(other, all)));
        CHECK(test::agree(static_cast<bool>(result) && result.metadata.at("epoch") == "3"));
        other.push(all[0].key,
                   all[0].value);  // the keys are known, in the order of the saved store
      });
    });
  }
}

TEST_CASE("a checkpoint of all ranks loads into local and device stores, and the other way") {
  const std::vector<Item> all = items(true);
  with_folder([&](const test::fs::path& folder) {
    KVStore dist = test::dist();
    init(dist, all);
    dist.save(folder / "dist");
    for (const char* type : {"local", "device"}) {
      KVStore kv = KVStore::create(type, test::settings());
      kv.load(folder / "dist");
      CHECK(test::agree(holds(kv, all)));
      if (test::rank() == 0) kv.save(folder / type);
      CHECK(test::agree(true));
      KVStore back = test::dist();
      back.load(folder / type);
      CHECK(test::agree(holds(back, all)));
    }
  });
}

TEST_CASE("training goes on with the same bits after a load, in the same store and in another") {
  with_folder([](const test::fs::path& folder) {
    test::for_each_type([&](KVStore& kv, float) {
      const auto directory = directory_of(kv, folder);
      start(kv);
      train(kv, 0, 5);
      kv.save(directory);
      train(kv, 5, 9);
      const Tensor w = test::stored(kv, "w");
      const Tensor v = test::stored(kv, "v");

      kv.load(directory);
      train(kv, 5, 9);
      CHECK(test::agree(test::same_bits(kv.view("w"), w) && test::same_bits(kv.view("v"), v)));

      KVStore other = KVStore::create(kv.type(), test::settings());
      other.set_optimizer(tutti::optimizer::adam({.learning_rate = 0.05}));
      other.load(directory);
      train(other, 5, 9);
      CHECK(test::agree(test::same_bits(other.view("w"), w)));
      CHECK(test::agree(test::same_bits(other.view("v"), v)));
      other.push("never pushed", filled(1, {5}));
    });
  });
}

TEST_CASE("optimizer states alone come back into any type of store") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    start(kv);
    train(kv, 0, 5);
    const auto path = folder / "states";
    kv.save_optimizer_states(path);
    kv.save_optimizer_states(path);  // replaces
    CHECK(test::agree(!test::fs::exists(path.string() + ".partial")));
    const Tensor w = test::stored(kv, "w");
    const Tensor v = test::stored(kv, "v");
    const auto all = [&](const Tensor& of) {  // what a push of it by every rank sums up to
      Tensor sum = of.clone();
      if (test::size() > 1) tutti::Communicator::world(test::settings()).allreduce(sum);
      return sum;
    };
    kv.push({"w", "v"}, {gradient(5), gradient(6)});
    const Tensor expected_w = test::stored(kv, "w");
    const Tensor expected_v = test::stored(kv, "v");
    const Tensor sum_w = all(gradient(5));
    const Tensor sum_v = all(gradient(6));
    test::for_each_type([&](KVStore& other, float) {
      const bool is_dist = other.type() == "dist";
      other.set_optimizer(tutti::optimizer::adam({.learning_rate = 0.05}));
      other.init({"w", "v", "never pushed"}, {w, v, filled(3, {5})});
      other.load_optimizer_states(path);
      other.push({"w", "v"},
                 {is_dist ? gradient(5) : sum_w.clone(), is_dist ? gradient(6) : sum_v.clone()});
      CHECK(test::agree(test::same_bits(other.view("w"), expected_w)));
      CHECK(test::agree(test::same_bits(other.view("v"), expected_v)));
    });
  });
}

TEST_CASE("a replica keeps its address over a load, and a load overwrites what was pushed since") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    kv.init({1, 2}, {filled(1), filled(2)});
    const auto before = kv.view(1);
    kv.save(folder / "c");
    kv.push({1, 2}, {filled(5), filled(6)});
    kv.load(folder / "c");
    CHECK(test::agree(kv.view(1).bytes() == before.bytes()));
    CHECK(test::all_are(before, 1));
    CHECK(test::all_are(test::stored(kv, 2), 2));
  });
}

TEST_CASE("string keys keep the order of their init over a load into a new store") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    const std::vector<Key> keys = {"z", "m", "a", "q", "b"};
    for (const Key& key : keys) kv.init(key, filled(1));
    kv.save(folder / "c");
    KVStore other = test::dist();
    other.load(folder / "c");
    std::vector<Key> updated;
    other.set_updater(
        [&](const Key& key, tutti::ConstTensorView, tutti::TensorView) { updated.push_back(key); });
    other.push({"a", "b", "m", "q", "z"}, {filled(1), filled(1), filled(1), filled(1), filled(1)});
    CHECK(test::agree(updated == keys));
  });
}

TEST_CASE("two generations are kept, and the newest is loaded") {
  with_folder([](const test::fs::path& folder) {
    const auto directory = folder / "c";
    KVStore kv = test::dist();
    kv.init(3, filled(0));
    for (int i = 1; i <= 5; ++i) {
      kv.push(3, filled(test::rank() == 0 ? i : 0));
      kv.save(directory, {{"i", std::to_string(i)}});
    }
    std::vector<std::string> names;
    for (const auto& entry : test::fs::directory_iterator(directory)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    CHECK(test::agree(names == std::vector<std::string>{"generation-4", "generation-5"}));
    const LoadResult result = kv.load(directory);
    CHECK(test::agree(result.generation == 5 && result.metadata.at("i") == "5"));
    CHECK(test::all_are(test::stored(kv, 3), 5));
  });
}

TEST_CASE("a store without keys, and one without any elements, are saved and loaded") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    kv.save(folder / "c", {{"only", "metadata"}});
    CHECK(test::agree(kv.load(folder / "c").metadata.at("only") == "metadata"));
    kv.init("empty", filled(0, {0}));
    kv.save(folder / "c");
    KVStore other = test::dist();
    other.load(folder / "c");
    CHECK(test::agree(other.view("empty").count() == 0));
  });
}

TEST_CASE("weights_only loads what any optimizer left, and lets this store's start anew") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    start(kv);
    train(kv, 0, 3);
    kv.save(folder / "c");
    const Tensor w = test::stored(kv, "w");
    for (const bool runs_sgd : {false, true}) {
      KVStore other = test::dist();
      if (runs_sgd) other.set_optimizer(tutti::optimizer::sgd({.momentum = 0.9}));
      other.load(folder / "c", {.weights_only = true});
      CHECK(test::agree(test::same_bits(other.view("w"), w)));
      other.push("w", gradient(1));
    }
  });
}

TEST_CASE("a learning rate may change over a load, other options only if asked for") {
  with_folder([](const test::fs::path& folder) {
    KVStore kv = test::dist();
    start(kv);
    train(kv, 0, 3);
    kv.save(folder / "c");
    kv.set_optimizer(tutti::optimizer::adam({.learning_rate = 0.001}));
    kv.load(folder / "c");
    CHECK(test::agree(kv.optimizer().learning_rate() == 0.001));
    kv.set_optimizer(tutti::optimizer::adam({.beta1 = 0.5}));
    CHECK(test::throws_on_all([&] { kv.load(folder / "c"); }, ErrorCode::invalid_argument,
                              {"are of adam", "runs adam", "other_options"}));
    kv.load(folder / "c", {.other_options = true});
    train(kv, 3, 5);
  });
}

TEST_CASE("what ranks of several nodes save, they load") {
  const std::vector<Item> all = items(true);
  with_folder([&](const test::fs::path& folder) {
    tutti::Settings settings = test::settings();
    settings.ranks_per_node = {1};
    KVStore kv = KVStore::create("dist", settings);
    init(kv, all);
    kv.save(folder / "c");
    KVStore other = KVStore::create("dist", settings);
    other.load(folder / "c");
    CHECK(test::agree(holds(other, all)));
  });
}

// --- tables of rows ------------------------------------------------------------------------------

// Row-sparse keys in checkpoints.

namespace {

constexpr const char* kOptimizer = "adam,learning_rate=0.05";

void start_rows(KVStore& kv) {
  kv.set_optimizer(tutti::optimizer::create(kOptimizer));
  kv.init_row_sparse(3, test::random_tensor(test::kTable, tutti::DType::float32, 0));
  kv.init_row_sparse(4, {100000, 8});
  kv.init(5, test::filled(1));
}

void train_rows(KVStore& kv, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t seed = first; seed < last; ++seed) {
    kv.push(3, Rows<float>(test::rank(), seed).tensors());
    kv.push(5, test::filled(static_cast<double>(seed)));
  }
}

bool are_equal(const KVStore& left, const KVStore& right) {
  bool equal = true;
  for (const int key : {3, 4, 5}) equal &= test::same_bits(left.view(key), right.view(key));
  return test::agree(equal);
}

}  // namespace

TEST_CASE("a run with row-sparse keys goes on from a checkpoint with the same bits") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore whole = test::dist();
    start_rows(whole);
    train_rows(whole, 1, 4);
    whole.save(folder / "run");
    whole.save_optimizer_states(folder / "states");
    KVStore with_keys = test::dist();
    start_rows(with_keys);
    with_keys.load(folder / "run");
    KVStore without = test::dist();
    without.set_optimizer(tutti::optimizer::create(kOptimizer));
    without.load(folder / "run");
    CHECK(are_equal(whole, without));
    KVStore by_states = test::dist();
    start_rows(by_states);
    by_states.load(folder / "run");
    by_states.load_optimizer_states(folder / "states");
    for (KVStore* kv : {&whole, &with_keys, &without, &by_states}) train_rows(*kv, 4, 7);
    CHECK(are_equal(whole, with_keys));
    CHECK(are_equal(whole, without));
    CHECK(are_equal(whole, by_states));
  });
}

TEST_CASE("a key that is dense here and row-sparse in the file, or the reverse, is refused") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore saved = test::dist();
    saved.init_row_sparse("table", {4, 2});
    saved.init("bias", test::filled(1, {2}));
    saved.save(folder / "run");
    KVStore dense = test::dist();
    dense.init({"table", "bias"}, {test::filled(7, {4, 2}), test::filled(7, {2})});
    CHECK(test::throws_on_all([&] { dense.load(folder / "run"); },
                              tutti::ErrorCode::invalid_argument,
                              {"key table (4, 2) float32 is dense here"}));
    CHECK(test::all_are(dense.view("table"), 7));
    KVStore sparse = test::dist();
    sparse.init_row_sparse("table", {4, 2});
    sparse.init_row_sparse("bias", Tensor::full({2}, 7));
    CHECK(test::throws_on_all([&] { sparse.load(folder / "run"); },
                              tutti::ErrorCode::invalid_argument,
                              {"key bias (2) float32 is row-sparse here"}));
    CHECK(test::all_are(sparse.view("bias"), 7));
  });
}
