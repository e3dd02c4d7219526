// SPDX-License-Identifier: Apache-2.0
// Pushes and pulls of rows that are wrong on one rank, or differ between ranks: an error on every
// rank, and a store that works on.
#include <vector>

#include "tests/mpi/store_fixture.hpp"

using tutti::DType;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::RowSparse;
using tutti::Tensor;

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr auto kMismatch = ErrorCode::mismatch;

Tensor ids(const std::vector<std::int64_t>& list) { return Tensor::from<std::int64_t>(list); }

struct Store {
  KVStore kv = test::dist();
  Store() {
    kv.init_row_sparse(3, {10, 2});
    kv.init_row_sparse(5, Tensor::zeros({10, 3}));
    kv.init(7, test::filled(0));
  }
  void push(const Tensor& which, const Tensor& rows) { kv.push(3, row_sparse(which, rows)); }

  /// The last rank pushes these, the others what is right.
  bool refuses(const Tensor& which, const Tensor& rows, std::vector<std::string> words) {
    words.push_back(test::last());
    return test::throws_on_all(
        [&] {
          test::is_last() ? push(which, rows) : push(ids({1}), test::filled(1, {1, 2}));
        },
        kInvalid, words);
  }
  void check_usable() {
    push(ids({1, 9}), test::filled(2, {2, 2}));
    CHECK(test::agree(kv.view(3).values<float>()[18] == 2 * static_cast<float>(test::size())));
    push(ids({9}), test::filled(0, {1, 2}));
    kv.push(7, test::filled(1));
    CHECK(test::all_are(kv.view(7), static_cast<float>(test::size())));
  }
};

}  // namespace

TEST_CASE("a rank that pushes an empty RowSparse pushes no rows, whatever the table is like") {
  Store store;
  store.kv.init_row_sparse(8, {4, 2, 3}, DType::float64);
  const float one = 1;
  const auto push = [&](int key, const RowSparse& mine) {
    test::is_last() ? store.kv.push(key, RowSparse{}) : store.kv.push(key, mine);
  };
  push(3, RowSparse::from({1, 9}, test::filled(one, {2, 2})));
  push(8, RowSparse::from(std::vector<int>{3}, Tensor::ones({1, 2, 3}, DType::float64)));
  const double others = test::size() - 1;
  CHECK(test::agree(store.kv.view(3).value(18) == others && store.kv.view(3).value(2) == others));
  CHECK(test::agree(store.kv.view(8).value(23) == others && store.kv.view(8).value(0) == 0));
  store.kv.push(3, RowSparse{});
  store.kv.push({3, 8}, {RowSparse{}, RowSparse{}});
  CHECK(test::agree(store.kv.view(3).value(18) == others && store.kv.view(8).value(23) == others));
  store.check_usable();
}

TEST_CASE("row ids that are not in the table are refused on all ranks") {
  Store store;
  CHECK(store.refuses(ids({3, 10}), test::filled(1, {2, 2}),
                      {"key 3 (10, 2) float32", "row id 10 at position 1: expected 0 to 9"}));
  CHECK(store.refuses(ids({-1}), test::filled(1, {1, 2}), {"row id -1 at position 0"}));
  store.check_usable();
}

TEST_CASE("ids that are no integers and rows that do not fit are refused on all ranks") {
  Store store;
  CHECK(store.refuses(test::filled(1, {1}), test::filled(1, {1, 2}),
                      {"row ids have dtype float32, expected an integer type"}));
  CHECK(store.refuses(ids({1}), test::filled(1, {2, 2}),
                      {"rows have shape (2, 2), expected (1, 2) for 1 row ids"}));
  CHECK(store.refuses(ids({1}), test::filled(1, {1, 3}), {"rows have shape (1, 3)"}));
  CHECK(store.refuses(ids({1}), Tensor::ones({1, 2}, DType::float64),
                      {"rows have dtype float64, expected float32"}));
  store.check_usable();
}

TEST_CASE("a dense push of rows' key, and rows for a dense key, are refused on all ranks") {
  Store store;
  CHECK(test::throws_on_all(
      [&] {
        store.kv.push(3, test::filled(1, {10, 2}));
      },
      kInvalid, {"key 3 (10, 2) float32 is row-sparse"}));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.push(7, row_sparse(ids({0}), test::filled(1, {1, 3})));
      },
      kInvalid, {"key 7 (2, 3) float32 is dense"}));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.push(4, row_sparse(ids({0}), test::filled(1, {1, 3})));
      },
      kInvalid, {"key 4 is unknown"}));
  store.check_usable();
}

TEST_CASE("rows on one rank, a dense push on another: a mismatch that names both") {
  Store store;
  CHECK(test::throws_on_all(
      [&] {
        if (test::is_last()) {
          store.push(ids({1}), test::filled(1, {1, 2}));
        } else {
          store.kv.push(7, test::filled(1));
        }
      },
      test::size() == 1 ? kInvalid : kMismatch,
      {"push of rows of key 3 (10, 2)", "push of key 7 (2, 3)"}));
  store.check_usable();
}

TEST_CASE("rows of different keys, and row-sparse here but dense there, are mismatches") {
  Store store;
  CHECK(test::throws_on_all(
      [&] {
        if (test::is_last()) {
          store.push(ids({1}), test::filled(1, {1, 2}));
        } else {
          store.kv.push(5, row_sparse(ids({1}), test::filled(1, {1, 3})));
        }
      },
      kMismatch, {"key 3 (10, 2)", "key 5 (10, 3)"}));
  CHECK(test::throws_on_all(
      [&] {
        if (test::is_last()) {
          store.kv.init_row_sparse(8, Tensor::ones({2, 3}));
        } else {
          store.kv.init(8, Tensor::ones({2, 3}));
        }
      },
      kMismatch, {"init of key 8", "init_row_sparse of key 8"}));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.init_row_sparse(8, {test::is_last() ? 5 : 4, 3});
      },
      kMismatch, {"init_row_sparse of key 8 (4, 3)", "(5, 3)"}));
  store.check_usable();
}

TEST_CASE("an optimizer or updater that takes no rows is refused, naming those that do") {
  Store store;
  const auto push = [&] { store.push(ids({1}), test::filled(1, {1, 2})); };
  store.kv.set_optimizer(tutti::optimizer::create("lamb"));
  CHECK(test::throws_on_all(push, kInvalid,
                            {"key 3", "lamb does not update single rows", "adagrad, adam, sgd"}));
  store.kv.set_updater([](const tutti::Key&, tutti::ConstTensorView, tutti::TensorView) {});
  CHECK(test::throws_on_all(push, kInvalid, {"key 3", "set_updater a second function"}));
  store.kv.init_row_sparse(9, Tensor::zeros({2, 2}, DType::float16));
  store.kv.set_optimizer(tutti::optimizer::create("sgd,multi_precision=true"));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.push(9, row_sparse(ids({1}), Tensor::ones({1, 2}, DType::float16)));
      },
      kInvalid, {"key 9", "float32 and float64"}));
  const auto rows = [](const tutti::Key&, const tutti::RowSparseView&, tutti::TensorView) {};
  CHECK(test::throws_on_all([&] { store.kv.set_updater(nullptr, rows); }, kInvalid, {"give both"}));
  store.kv.set_updater(nullptr);
  store.check_usable();
}

TEST_CASE("a learning rate that differs on one rank is a mismatch of a push of rows") {
  Store store;
  store.kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = test::is_last() ? 0.5 : 0.25}));
  CHECK(test::throws_on_all(
      [&] {
        store.push(ids({1}), test::filled(1, {1, 2}));
      },
      kMismatch, {"learning_rate=0.5", "learning_rate=0.25"}));
  store.kv.set_updater(nullptr);
  store.check_usable();
}

TEST_CASE("init refuses a scalar, a key that exists, and more than there is memory") {
  Store store;
  CHECK(test::throws_on_all([&] { store.kv.init_row_sparse(8, tutti::Shape{}); }, kInvalid,
                            {"key is a table, of one dimension at least"}));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.init_row_sparse(3, {2, 2});
      },
      kInvalid, {"key 3 (10, 2) float32 exists already"}));
  CHECK(test::throws_on_all(
      [&] {
        store.kv.init_row_sparse(8, {std::int64_t{1} << 40, std::int64_t{1} << 20});
      },
      ErrorCode::out_of_memory,
      {"row-sparse table: no memory for shape (1099511627776, 1048576)"}));
  store.check_usable();
}

TEST_CASE("rows that do not fit into the ranks' shared memory are refused on all ranks") {
  tutti::Settings settings = test::settings();
  settings.arena_bytes = std::size_t{16} << 20;
  KVStore kv = KVStore::create("dist", settings);
  kv.init_row_sparse(3, {1000, 10000});
  std::vector<std::int64_t> many(test::is_last() ? 1000 : 1);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i);
  const auto count = static_cast<std::int64_t>(many.size());
  CHECK(test::throws_on_all(
      [&] {
        kv.push(3, row_sparse(ids(many), test::filled(1, {count, 10000})));
      },
      ErrorCode::out_of_memory, {"push", "MiB do not fit into the 16 MiB reserved"}));
  CHECK(test::all_are(kv.view(3), 0));
  kv.push(3, row_sparse(ids({7}), test::filled(1, {1, 10000})));
  CHECK(test::agree(kv.view(3).values<float>()[70000] == static_cast<float>(test::size())));
}

TEST_CASE("a wrong pull of rows is an error on its rank alone and writes nothing") {
  Store store;
  RowSparse out;
  const auto check = [&](const std::function<void()>& pull, const std::vector<std::string>& words) {
    CHECK(test::throws_on(test::size() - 1, pull, kInvalid, words));
  };
  KVStore& kv = store.kv;
  check([&] { kv.row_sparse_pull(3, out, ids({0, 10})); }, {"row_sparse_pull", "row id 10"});
  check([&] { kv.row_sparse_pull(3, out, test::filled(1)); }, {"dtype float32"});
  check([&] { kv.row_sparse_pull(7, out, ids({0})); }, {"key 7 (2, 3) float32 is dense"});
  check([&] { kv.row_sparse_pull(4, out, ids({0})); }, {"key 4 is unknown"});
  RowSparse second;
  check([&] { kv.row_sparse_pull({3, 5}, {out, second}, {ids({0}), ids({10})}); }, {"row id 10"});
  check(
      [&] {
        kv.row_sparse_pull({3, 5}, {out, second}, {ids({0}), ids({0}), ids({0})});
      },
      {"2 outputs but 3 lists of row ids"});
  CHECK(out.ids.count() == 0);
  store.check_usable();
}
