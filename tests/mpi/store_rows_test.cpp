// SPDX-License-Identifier: Apache-2.0
// Row-sparse pushes, pulls and updates.
#include <vector>

#include "tests/mpi/rows_reference.hpp"
#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"

using test::kTable;
using test::Rows;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::RowSparse;
using tutti::RowSparseView;
using tutti::Tensor;

// --- pushes and pulls ----------------------------------------------------------------------------

// Row-sparse keys: what a push of rows stores, and what a pull of rows gives.

namespace {

Tensor ids(const std::vector<std::int64_t>& list) { return Tensor::from<std::int64_t>(list); }

std::vector<std::int64_t> list_of(const Tensor& tensor) {
  const auto values = tensor.values<std::int64_t>();
  return {values.begin(), values.end()};
}

/// Rows of two elements, each of one value.
RowSparse rows(const std::vector<std::int64_t>& list, const std::vector<float>& values) {
  RowSparse made{ids(list), Tensor::empty({static_cast<std::int64_t>(list.size()), 2})};
  for (std::size_t i = 0; i < 2 * list.size(); ++i) made.rows.values<float>()[i] = values[i / 2];
  return made;
}

/// The first element of each row of a table of rows of two.
std::vector<float> firsts(const tutti::ConstTensorView& table) {
  std::vector<float> found;
  for (std::size_t i = 0; i < table.count(); i += 2) found.push_back(table.values<float>()[i]);
  return found;
}

template <class T>
Tensor expected_table(const Tensor& before, int ranks, std::uint64_t seed) {
  Tensor table = before.clone();
  for (const auto& [id, row] : test::merged_rows<T>(ranks, seed)) {
    std::ranges::copy(row, table.values<T>().begin() + id * static_cast<int>(test::kRowCount));
  }
  return table;
}

}  // namespace

TEST_CASE("a push of rows stores the sum of their union over ranks, in the bits of the tree") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout));
    for (const DType dtype : test::kDTypes) {
      CAPTURE(tutti::to_string(dtype));
      tutti::visit(dtype, [&]<class T>(T) {
        const int key = static_cast<int>(dtype);
        Tensor expected = test::random_tensor(kTable, dtype, 0);
        kv.init_row_sparse(key, test::random_tensor(kTable, dtype, test::rank()));
        for (std::uint64_t seed = 1; seed < 6; ++seed) {
          kv.push(key, Rows<T>(test::rank(), seed).tensors());
          expected = expected_table<T>(expected, test::size(), seed);
          REQUIRE(test::agree(test::same_bits(kv.view(key), expected)));
        }
      });
    }
  }
}

TEST_CASE("a push of rows has the bits of a dense push whose other rows are zero") {
  KVStore kv = test::dist();
  Tensor dense = Tensor::zeros(kTable);
  const Rows<float> mine(test::rank(), 3);
  for (std::size_t i = 0; i < mine.ids.size(); ++i) {
    for (std::size_t j = 0; j < test::kRowCount; ++j) {
      // One occurrence of each row: which of several is summed first is another matter.
      dense.values<float>()[static_cast<std::size_t>(mine.ids[i]) * test::kRowCount + j] =
          mine.values[i * test::kRowCount + j];
    }
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(test::kTableRows));
  std::iota(all.begin(), all.end(), 0);
  const auto last_of = [&](std::int64_t id) { return std::ranges::count(mine.ids, id) > 0; };
  std::vector<std::int64_t> some;
  std::ranges::copy_if(all, std::back_inserter(some), last_of);
  Tensor values = Tensor::empty({static_cast<std::int64_t>(some.size()), 2, 3});
  for (std::size_t i = 0; i < some.size(); ++i) {
    std::copy_n(dense.values<float>().begin() + some[i] * static_cast<int>(test::kRowCount),
                test::kRowCount, values.values<float>().begin() + i * test::kRowCount);
  }
  kv.init(1, Tensor::zeros(kTable));
  kv.init_row_sparse(2, kTable);
  kv.push(1, dense);
  kv.push(2, row_sparse(ids(some), values));
  CHECK(test::agree(test::same_bits(kv.view(1), kv.view(2))));
}

TEST_CASE("many rows cross in many pieces, with the bits of a dense push, in every layout") {
  constexpr std::int64_t kRows = 30000;
  const auto own_rows = [](int owner) {
    std::vector<std::int64_t> some;
    for (std::int64_t id = 0; id < kRows; ++id) {
      if (test::mix(static_cast<std::uint64_t>(id * 8 + owner)) % 3 == 0) some.push_back(id);
    }
    return some;
  };
  const std::vector<std::int64_t> mine = own_rows(test::rank());
  const Tensor values = test::random_tensor({static_cast<std::int64_t>(mine.size()), 8},
                                            DType::float32, test::rank());
  Tensor dense = Tensor::zeros({kRows, 8});
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::copy_n(values.values<float>().begin() + static_cast<int>(i) * 8, 8,
                dense.values<float>().begin() + mine[i] * 8);
  }
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout, /*reproducible=*/true));
    kv.init(1, Tensor::zeros({kRows, 8}));
    kv.init_row_sparse(2, {kRows, 8});
    for (int i = 0; i < 2; ++i) {
      kv.push(1, dense);
      kv.push(2, row_sparse(ids(mine), values));
    }
    CHECK(test::agree(test::same_bits(kv.view(1), kv.view(2))));
  }
}

TEST_CASE("rows of other ranks, no rows at all, and rows that only one rank has") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init_row_sparse(3, {6, 2});
    kv.push(3, rows({}, {}));
    CHECK(test::all_are(kv.view(3), 0));
    kv.push(3, rows({4, 1, 4}, {1, 2, 3}));
    CHECK(
        test::agree(firsts(kv.view(3)) == std::vector<float>{0, 2 * pushed, 0, 0, 4 * pushed, 0}));
    const bool is_last = kv.rank() == kv.num_workers() - 1;
    kv.push(3, is_last ? rows({0}, {7}) : rows({}, {}));
    CHECK(
        test::agree(firsts(kv.view(3)) == std::vector<float>{7, 2 * pushed, 0, 0, 4 * pushed, 0}));
    kv.push(3, rows({1}, {2}));
    CHECK(test::agree(firsts(kv.view(3))[1] == 2 * pushed));  // replaced, not added
  });
}

TEST_CASE("values of a list are summed by row, and several keys are one push, in any order") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init_row_sparse({5, 9}, {Tensor::ones({3, 2}), Tensor::ones({2, 2})});
    const RowSparse a = rows({2, 0}, {1, 2});
    const RowSparse b = rows({2}, {10});
    kv.push(5, {a, b});
    CHECK(test::agree(firsts(kv.view(5)) == std::vector<float>{2 * pushed, 1, 11 * pushed}));
    kv.push({9, 5, 9}, {rows({1}, {3}), rows({1}, {4}), rows({1, 0}, {5, 6})});
    CHECK(
        test::agree(firsts(kv.view(5)) == std::vector<float>{2 * pushed, 4 * pushed, 11 * pushed}));
    CHECK(test::agree(firsts(kv.view(9)) == std::vector<float>{6 * pushed, 8 * pushed}));
    const RowSparse c = rows({0}, {1});
    const std::vector<std::vector<tutti::RowSparseView>> lists = {{a, b}, {c}};
    kv.push({5, 9}, lists);
    CHECK(test::agree(firsts(kv.view(9))[0] == pushed));
  });
}

TEST_CASE("ids of a push may be of any integer type and shape") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init_row_sparse("table", {100, 2});
    for (const DType dtype : {DType::int8, DType::uint8, DType::int32, DType::int64}) {
      Tensor which = Tensor::empty({1, 2}, dtype);
      tutti::visit(dtype, [&]<class T>(T) {
        if constexpr (std::is_integral_v<T>) which.values<T>()[0] = 99;
        if constexpr (std::is_integral_v<T>) which.values<T>()[1] = 7;
      });
      const auto value = static_cast<float>(1 + static_cast<int>(dtype));
      kv.push("table", row_sparse(which, test::filled(value, {2, 2})));
      CHECK(test::agree(firsts(kv.view("table"))[99] == value * pushed));
      CHECK(test::agree(firsts(kv.view("table"))[7] == value * pushed));
    }
  });
}

TEST_CASE("a pull of rows gives each row once, ascending, and follows types and repetitions") {
  test::for_each_type([](KVStore& kv, float pushed) {
    kv.init_row_sparse(3, {9, 2});
    kv.push(3, rows({2, 5, 8}, {20, 50, 80}));
    RowSparse out;
    kv.row_sparse_pull(3, out, ids({8, 2, 8, 0}));
    CHECK(list_of(out.ids) == std::vector<std::int64_t>{0, 2, 8});
    CHECK(firsts(out.rows) == std::vector<float>{0, 20 * pushed, 80 * pushed});
    Tensor small = Tensor::full({2, 2}, 5, DType::uint8);
    kv.row_sparse_pull(3, out, small);
    CHECK(list_of(out.ids) == std::vector<std::int64_t>{5});
    kv.row_sparse_pull(3, out, Tensor::empty({0}, DType::int32));
    CHECK(out.ids.count() == 0);
    CHECK(out.rows.shape() == tutti::Shape{0, 2});
    RowSparse second;
    kv.row_sparse_pull(3, {out, second}, {ids({1}), ids({5, 2})});
    CHECK(firsts(out.rows) == std::vector<float>{0});
    CHECK(firsts(second.rows) == std::vector<float>{20 * pushed, 50 * pushed});
    kv.init_row_sparse(1, Tensor::ones({4}));  // a table of single numbers
    kv.row_sparse_pull({3, 1}, {out, second}, ids({2}), /*priority=*/1);
    CHECK(firsts(out.rows) == std::vector<float>{20 * pushed});
    CHECK(second.rows.values<float>()[0] == 1);
  });
}

TEST_CASE(
    "a pull of the whole table is ignored unless asked for, and a dense pull beside it works") {
  tutti::Settings settings = test::settings();
  settings.log = tutti::LogLevel::quiet;
  KVStore kv = KVStore::create("dist", settings);
  kv.init_row_sparse(3, Tensor::ones({3, 2}));
  kv.init(4, Tensor::full({2}, 4));
  Tensor table = test::filled(77, {3, 2});
  Tensor other = test::filled(77, {2});
  kv.pull({3, 4}, {table, other});
  CHECK(test::all_are(table, 77));
  CHECK(test::all_are(other, 4));
  kv.pull({3, 4}, {table, other}, {.ignore_sparse = false, .priority = 2});
  CHECK(test::all_are(table, 1));
  Tensor wide = Tensor::zeros({3, 2}, DType::float64);
  kv.pull(3, wide, {.cast = tutti::Cast::yes, .ignore_sparse = false});
  CHECK(test::agree(wide.values<double>()[5] == 1));
}

TEST_CASE("init of a row-sparse key takes rank 0's table") {
  KVStore kv = test::dist();
  kv.init_row_sparse("a", Tensor::full({3, 2}, test::rank() + 5));
  CHECK(test::all_are(kv.view("a"), 5));
}

TEST_CASE("pushes of rows and of dense lists alternate without confusing each other") {
  KVStore kv = test::dist();
  const auto sum = static_cast<float>(test::size());
  kv.init({1, 2}, {test::filled(0), test::filled(0)});
  kv.init_row_sparse(3, {5, 2});
  for (int i = 1; i < 5; ++i) {
    const auto value = static_cast<float>(i);
    kv.push({1, 2}, {test::filled(value), test::filled(2 * value)});
    kv.push(3, rows({i}, {value}));
    CHECK(test::all_are(kv.view(1), value * sum));
    CHECK(test::all_are(kv.view(2), 2 * value * sum));
    CHECK(test::agree(firsts(kv.view(3))[static_cast<std::size_t>(i)] == value * sum));
  }
}

TEST_CASE("a view of a table outlives the store") {
  std::optional<tutti::ConstTensorView> view;
  {
    KVStore kv = KVStore::create("local");
    kv.init_row_sparse(3, Tensor::ones({1000, 2}));
    view.emplace(kv.view(3));
  }
  CHECK(test::all_are(*view, 1));
}

// --- updates -------------------------------------------------------------------------------------

// Updates of row-sparse keys: optimizers touch the pushed rows alone, updaters get them merged.

namespace {

/// One row of a dense key for each row of the table: pushed only when the table's row is.
class DenseRows {
 public:
  DenseRows(const char* optimizer, const Tensor& table) : kv_(KVStore::create("local")) {
    for (std::int64_t id = 0; id < test::kTableRows; ++id) {
      const std::size_t first = static_cast<std::size_t>(id) * test::kRowCount * sizeof(double);
      kv_.init(id, tutti::ConstTensorView(table.bytes() + first, {2, 3}, DType::float64));
    }
    kv_.set_optimizer(tutti::optimizer::create(optimizer));
  }
  void push(std::int64_t id, const std::vector<double>& sum) {
    kv_.push(id, tutti::view(sum.data(), {2, 3}));
  }
  bool equal(const tutti::ConstTensorView& table) const {
    for (std::int64_t id = 0; id < test::kTableRows; ++id) {
      const std::size_t first = static_cast<std::size_t>(id) * test::kRowCount * sizeof(double);
      const tutti::ConstTensorView row(table.bytes() + first, {2, 3}, DType::float64);
      if (!test::same_bits(row, kv_.view(id))) return false;
    }
    return true;
  }

 private:
  KVStore kv_;
};

/// Counts of a row's own pushes are not the table's: only what has no t is compared over many.
void check_against_dense(const char* optimizer, std::uint64_t pushes) {
  CAPTURE(std::string(optimizer));
  KVStore kv = test::dist();
  const Tensor start = test::random_tensor(kTable, DType::float64, 0);
  kv.init_row_sparse(3, start);
  kv.set_optimizer(tutti::optimizer::create(optimizer));
  DenseRows dense(optimizer, start);
  for (std::uint64_t seed = 1; seed <= pushes; ++seed) {
    kv.push(3, Rows<double>(test::rank(), seed).tensors());
    for (const auto& [id, sum] : test::merged_rows<double>(test::size(), seed)) dense.push(id, sum);
    REQUIRE(test::agree(dense.equal(kv.view(3))));
  }
}

}  // namespace

TEST_CASE("sgd and adagrad update a table's pushed rows as if each were a key of its own") {
  check_against_dense("sgd,learning_rate=0.1,weight_decay=0.01", 6);
  check_against_dense("sgd,learning_rate=0.1,momentum=0.9,clip_gradient=0.5", 6);
  check_against_dense("adagrad,learning_rate=0.1,rescale_grad=0.25", 6);
}

TEST_CASE("adam does, too, with the count of the table's pushes") {
  check_against_dense("adam,learning_rate=0.1,weight_decay=0.01", 1);
  KVStore kv = KVStore::create("local");
  kv.init_row_sparse(3, {4, 2});
  kv.init(4, Tensor::zeros({4, 2}));
  kv.set_optimizer(tutti::optimizer::adam({.learning_rate = 0.1}));
  Tensor all = Tensor::from<std::int64_t>(std::vector<std::int64_t>{3, 2, 1, 0});
  for (int i = 0; i < 5; ++i) {
    kv.push(3, row_sparse(all, test::filled(i + 1, {4, 2})));
    kv.push(4, test::filled(i + 1, {4, 2}));
  }
  CHECK(test::agree(test::same_bits(kv.view(3), kv.view(4))));
}

TEST_CASE("float32 rows of any length are updated, and a schedule counts pushes of rows") {
  for (const std::int64_t length : {0, 1, 7, 2048, 5000}) {
    CAPTURE(length);
    KVStore kv = test::dist();
    kv.init_row_sparse(3, Tensor::ones({300, length}));
    kv.set_optimizer(
        tutti::optimizer::create("sgd,learning_rate=1,schedule=multifactor,steps=1,factor=0.5"));
    Tensor ids = Tensor::empty({300}, DType::int64);
    for (int i = 0; i < 300; ++i) ids.values<std::int64_t>()[static_cast<std::size_t>(i)] = i;
    kv.push(3, row_sparse(ids, test::filled(0.5, {300, length})));
    kv.push(3, row_sparse(ids, test::filled(0.5, {300, length})));
    const auto sum = static_cast<float>(test::size()) * 0.5f;
    CHECK(test::all_near(kv.view(3), 1 - sum - sum * 0.5f));
  }
}

TEST_CASE("an updater's second function gets the merged rows, ascending, and the table") {
  KVStore kv = test::dist();
  kv.init_row_sparse({3, 1}, {Tensor::ones({5, 2}), Tensor::ones({5, 2})});
  kv.init(7, test::filled(1));
  std::vector<Key> seen;
  kv.set_updater([&](const Key& key, const tutti::ConstTensorView&,
                     const tutti::TensorView&) { seen.push_back(key); },
                 [&](const Key& key, const RowSparseView& merged, const tutti::TensorView& stored) {
                   seen.push_back(key);
                   const auto ids = merged.ids().values<std::int64_t>();
                   const auto rows = merged.rows().values<float>();
                   CHECK(std::ranges::is_sorted(ids));
                   for (std::size_t i = 0; i < ids.size(); ++i) {
                     for (std::size_t j = 0; j < 2; ++j) {
                       stored.values<float>()[static_cast<std::size_t>(ids[i]) * 2 + j] +=
                           2 * rows[2 * i + j];
                     }
                   }
                 });
  const Tensor ids = Tensor::from<std::int64_t>(std::vector<std::int64_t>{4, 0});
  kv.push({3, 1},
          {row_sparse(ids, test::filled(1, {2, 2})), row_sparse(ids, test::filled(2, {2, 2}))});
  kv.push(7, test::filled(1));
  CHECK(test::agree(seen == std::vector<Key>{1, 3, 7}));
  const auto sum = static_cast<float>(test::size());
  CHECK(test::agree(kv.view(3).values<float>()[8] == 1 + 2 * sum));
  CHECK(test::agree(kv.view(3).values<float>()[2] == 1));
  CHECK(test::agree(kv.view(1).values<float>()[0] == 1 + 4 * sum));
}

TEST_CASE("what the function for rows throws fails the store, with an Error on all ranks") {
  KVStore kv = test::dist();
  kv.init_row_sparse(3, {5, 2});
  kv.set_updater([](const Key&, const tutti::ConstTensorView&, const tutti::TensorView&) {},
                 [](const Key&, const RowSparseView&, const tutti::TensorView&) {
                   throw std::runtime_error("no more rows");
                 });
  const Tensor ids = Tensor::from<std::int64_t>(std::vector<std::int64_t>{1});
  const auto error = test::error_of([&] { kv.push(3, row_sparse(ids, test::filled(1, {1, 2}))); });
  CHECK(test::agree(error && error->code() == ErrorCode::user_code &&
                    std::string(error->what()).find("key 3 threw: no more rows") !=
                        std::string::npos));
  const auto after = test::error_of([&] { (void)kv.view(3); });
  CHECK(test::agree(after && after->code() == ErrorCode::user_code && !after->recoverable()));
}

TEST_CASE("compression packs dense keys and leaves rows exact") {
  KVStore kv = test::dist();
  kv.init_row_sparse(3, {5, 2});
  kv.init_row_sparse(5, Tensor::zeros({5, 2}, DType::int32));
  kv.init(4, test::filled(0));
  kv.set_gradient_compression("2bit,threshold=0.5");
  const Tensor ids = Tensor::from<std::int64_t>(std::vector<std::int64_t>{1});
  kv.push(3, row_sparse(ids, test::filled(0.125, {1, 2})));
  kv.push(4, test::filled(0.75));
  kv.push(5, row_sparse(ids, Tensor::ones({1, 2}, DType::int32)));
  const auto sum = static_cast<float>(test::size());
  CHECK(test::agree(kv.view(3).values<float>()[2] == 0.125f * sum));
  CHECK(test::all_are(kv.view(4), 0.5f * sum));
  CHECK(test::agree(kv.view(5).values<std::int32_t>()[2] == test::size()));
}
