// SPDX-License-Identifier: Apache-2.0
// Row-sparse values, and the order of their ids.
#include <deque>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "runtime/store/sparse/sort.hpp"
#include "tests/support/standard_error.hpp"

using namespace tutti;

// --- values --------------------------------------------------------------------------------------

// Every form in which a call takes rows compiles and has its meaning; the warning of an ignored
// pull.

namespace {

RowSparse rows(std::int64_t id, double value) {
  return {Tensor::full({1}, static_cast<double>(id), DType::int64), Tensor::full({1, 2}, value)};
}

KVStore store() {
  KVStore kv = KVStore::create("local");
  kv.init_row_sparse({3, 4}, {Tensor::zeros({5, 2}), Tensor::zeros({5, 2})});
  return kv;
}

float first(const KVStore& kv, const Key& key, std::size_t row) {
  return kv.view(key).values<float>()[2 * row];
}

}  // namespace

TEST_CASE("pushes of rows: one value, lists, lists of lists, views, containers") {
  KVStore kv = store();
  const RowSparse a = rows(1, 10);
  RowSparse b = rows(1, 20);
  kv.push(3, a);
  CHECK(first(kv, 3, 1) == 10);
  kv.push(3, {a, b});
  CHECK(first(kv, 3, 1) == 30);
  kv.push({3, 4}, {a, b}, /*priority=*/1);
  CHECK(first(kv, 4, 1) == 20);
  kv.push({3, 4}, {{a, b}, {b}});
  CHECK(first(kv, 3, 1) == 30);
  kv.push(3, row_sparse(a.ids, b.rows));
  CHECK(first(kv, 3, 1) == 20);
  std::vector<RowSparse> owned;
  owned.push_back(rows(0, 7));
  owned.push_back(rows(2, 8));
  kv.push({3, 4}, owned);
  CHECK(first(kv, 4, 2) == 8);
  const std::vector<RowSparseView> views = {a, b};
  kv.push(3, views);
  const std::deque<RowSparseView> some(views.begin(), views.end());
  kv.push(3, some);
  CHECK(first(kv, 3, 1) == 30);
  kv.push(std::vector<Key>{}, std::vector<RowSparse>{});
}

TEST_CASE("RowSparse::from takes ids as a list or in a container; an empty one is no rows") {
  KVStore kv = store();
  kv.push(3, RowSparse::from({1, 4}, Tensor::from({1.f, 2.f, 3.f, 4.f}, {2, 2})));
  CHECK(kv.view(3).to_vector<int>() == std::vector<int>{0, 0, 1, 2, 0, 0, 0, 0, 3, 4});
  const std::vector<int> ids = {0};
  kv.push({3, 4}, {RowSparse{}, RowSparse::from(ids, Tensor::ones({1, 2}))});
  CHECK(first(kv, 3, 1) == 1);
  CHECK(first(kv, 4, 0) == 1);
  kv.push(3, {RowSparse{}, RowSparse::from({1}, Tensor::ones({1, 2})), RowSparse{}});
  CHECK(kv.view(3).value(3) == 1);
}

TEST_CASE("pulls of rows: one output, lists, one list of ids or several") {
  KVStore kv = store();
  kv.push(3, rows(1, 10));
  RowSparse a;
  RowSparse b;
  const Tensor ids = Tensor::full({2, 2}, 1, DType::int32);
  kv.row_sparse_pull(3, a, ids);
  CHECK(a.rows.values<float>()[0] == 10);
  kv.row_sparse_pull(3, {a, b}, {ids, ids});
  kv.row_sparse_pull({3, 4}, {a, b}, ids);
  CHECK(b.rows.values<float>()[0] == 0);
  std::vector<RowSparse> outputs(2);
  kv.row_sparse_pull(std::vector<int>{4, 3}, outputs, ids);
  CHECK(outputs[1].rows.values<float>()[0] == 10);
  std::vector<std::vector<RowSparse>> lists(2);
  lists[0].resize(1);
  lists[1].resize(2);
  kv.row_sparse_pull({4, 3}, lists, {ids, ids, ids});
  CHECK(lists[1][1].rows.values<float>()[0] == 10);
  RowSparse wide{Tensor::zeros({1}, DType::int64), Tensor::zeros({9}, DType::float64)};
  kv.row_sparse_pull(3, wide, ids);  // the output is made anew with the right types
  CHECK(wide.rows.shape() == Shape{1, 2});
  CHECK(wide.rows.dtype() == DType::float32);
}

TEST_CASE("an ignored pull of a row-sparse key warns once, and not where warnings are off") {
  KVStore kv = store();
  Tensor out = Tensor::full({5, 2}, 77);
  const std::string text = test::written_by([&] {
    kv.pull({3, 4}, {out, out});
    kv.pull(3, out);
  });
  CHECK(text.find("tutti: warning: pull: key ") == 0);
  CHECK(
      text.find("key 3 (5, 2) float32 is row-sparse and was ignored; use row_sparse_pull, or pull "
                "with ignore_sparse = false\n") != std::string::npos);
  CHECK(text.find("key 4") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(out.values<float>()[0] == 77);
  Settings settings;
  settings.log = tutti::LogLevel::quiet;
  KVStore silent = KVStore::create("local", settings);
  silent.init_row_sparse(3, {5, 2});
  CHECK(test::written_by([&] { silent.pull(3, out); }).empty());
}

namespace {

struct Numbered {
  std::int64_t id;
  std::size_t number;
  friend bool operator==(const Numbered&, const Numbered&) = default;
};

}  // namespace

TEST_CASE("sort_by_digits orders as a stable sort does, for any count and size of ids") {
  std::mt19937_64 random(7);
  for (const std::size_t count : {0, 1, 2, 127, 128, 129, 1000, 5000}) {
    for (const std::int64_t most :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{2048}, std::int64_t{2049},
          std::int64_t{10000000}, std::int64_t{1} << 44,
          std::numeric_limits<std::int64_t>::max()}) {
      CAPTURE(count);
      CAPTURE(most);
      std::vector<Numbered> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = {static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)), i};
      }
      std::vector<Numbered> expected = values;
      std::ranges::stable_sort(expected, {}, &Numbered::id);
      tutti::sort_by_digits(values, &Numbered::id);
      CHECK(values == expected);
    }
  }
}

TEST_CASE("a pull into rows that were moved from leaves what has them alone") {
  KVStore kv = store();
  kv.push(3, rows(1, 10));
  const Tensor ids = Tensor::from<std::int64_t>({1});
  RowSparse pulled;
  kv.row_sparse_pull(3, pulled, ids);
  const Tensor kept = std::move(pulled.rows);
  kv.push(3, rows(1, 20));
  kv.row_sparse_pull(3, pulled, ids);
  CHECK(kept.value(0) == 10);
  CHECK(pulled.rows.value(0) == 20);
}

TEST_CASE("ids of any integer type, and an empty list of any type") {
  KVStore kv = store();
  kv.push(3, RowSparse::from(std::vector<std::size_t>{1}, Tensor::ones({1, 2})));
  kv.push(4, RowSparse::from(std::vector<short>{2}, Tensor::ones({1, 2})));
  CHECK(first(kv, 3, 1) == 1);
  CHECK(first(kv, 4, 2) == 1);
  RowSparse pulled;
  kv.row_sparse_pull(3, pulled, Tensor::empty({0}, DType::float64));
  CHECK(pulled.rows.shape() == Shape{0, 2});
}

namespace {

/// An optimizer that counts in its state, which starts as the weight.
class FromWeight final : public Optimizer {
 public:
  explicit FromWeight(int states = 1) : Optimizer("from-weight", {}), states_(states) {}
  int num_states() const override { return states_; }
  bool starts_as_weight(int /*state*/) const override { return true; }
  bool updates_rows() const override { return true; }
  void update(const UpdateStep&, const ElementRange<float>& range) const override {
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      range.weight[i] = range.states[0][i] += range.gradient[i];
    }
  }
  void update(const UpdateStep&, const ElementRange<double>&) const override {}

 private:
  int states_;
};

}  // namespace

TEST_CASE("a state of rows starts as the weight where its optimizer says so") {
  KVStore kv = KVStore::create("local");
  kv.init_row_sparse(3, Tensor::full({5, 2}, 100));
  kv.set_optimizer(std::make_shared<FromWeight>());
  kv.push(3, rows(1, 10));
  CHECK(first(kv, 3, 1) == 110);
  kv.push(3, rows(1, 1));
  CHECK(first(kv, 3, 1) == 111);
}

TEST_CASE("an optimizer with more states than there is room for is refused") {
  KVStore kv = KVStore::create("local");
  for (const int states : {-1, Optimizer::kMostStates + 1}) {
    CHECK_THROWS_WITH_AS(kv.set_optimizer(std::make_shared<FromWeight>(states)),
                         ("set_optimizer: from-weight has " + std::to_string(states) +
                          " states per key; expected 0 to 7")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("a store that was moved from says so") {
  KVStore kv = store();
  KVStore other = std::move(kv);
  const auto says = "this store was moved from; use the one that it is now";
  CHECK_THROWS_WITH_AS(kv.barrier(), says, Error);      // NOLINT(bugprone-use-after-move)
  CHECK_THROWS_WITH_AS((void)kv.view(3), says, Error);  // NOLINT(bugprone-use-after-move)
  kv = std::move(other);
  CHECK(first(kv, 3, 0) == 0);
}
