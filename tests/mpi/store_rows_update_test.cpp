// SPDX-License-Identifier: Apache-2.0
// Updates of row-sparse keys: optimizers touch the pushed rows alone, updaters get them merged.
#include <vector>

#include "tests/mpi/rows_reference.hpp"
#include "tests/mpi/store_fixture.hpp"

using test::kTable;
using test::Rows;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::RowSparseView;
using tutti::Tensor;

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
