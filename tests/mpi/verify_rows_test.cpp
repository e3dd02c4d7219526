// SPDX-License-Identifier: Apache-2.0
// Tables of row-sparse keys that should be equal and are not.
#include <filesystem>
#include <numeric>
#include <random>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/verify_fixture.hpp"
#include "tests/support/standard_error.hpp"

using test::can_heal;
using test::check_found;
using test::filled;
using test::flip;
using test::FlippedState;
using test::healed_by_pushes;
using test::store_with;
using test::with;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::Verify;

namespace {

constexpr std::int64_t kRow = 49999;  // in a table in which few rows were ever written

void push_rows(KVStore& kv, const std::vector<std::int64_t>& ids, const Tensor& rows,
               const Key& key = 1) {
  const auto count = static_cast<std::int64_t>(ids.size());
  kv.push(key, tutti::row_sparse(tutti::view(ids.data(), {count}), rows));
}

}  // namespace

TEST_CASE("verify looks at the tables of row-sparse keys") {
  if (!can_heal()) return;
  KVStore kv = store_with(Verify::sampled);
  kv.init_row_sparse(1, {50000, 4});
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1, .momentum = 0.5}));
  const std::vector<std::int64_t> ids = {3, 49999};
  const Tensor rows = filled(1, {2, 4});
  kv.push(1, tutti::row_sparse(tutti::view(ids.data(), {2}), rows));
  CHECK(kv.verify().healed == 0);
  flip(kv, 1, 32 * (4 * 49999 + 1), 2);
  CHECK(kv.verify().healed == 1);
  CHECK(kv.view(1).values<float>()[4 * 49999 + 1] == -static_cast<float>(test::size()));
}

TEST_CASE("a flipped bit of a row is healed by the push after the one that changed the row") {
  if (test::size() < 2) return;
  for (const test::Layout& layout : test::all_layouts()) {
    KVStore kv = KVStore::create("dist", with(Verify::full, layout));
    kv.init_row_sparse(1, {50000, 4});
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1, .momentum = 0.5}));
    const Tensor one_row = filled(1, {1, 4});
    push_rows(kv, {kRow}, one_row);
    flip(kv, 1, 32 * (4 * kRow + 1) + 30, test::size() - 1);
    push_rows(kv, {7 + test::rank(), kRow}, filled(1, {2, 4}));
    const auto push_again = [&] { push_rows(kv, {3}, one_row); };
    if (can_heal()) {
      push_again();
      CHECK(healed_by_pushes(kv) == 1);
      const float expected = -2.5f * static_cast<float>(test::size());  // 1 + (0.5 + 1)
      CHECK(kv.view(1).values<float>()[4 * kRow + 1] == expected);
    } else {
      const std::vector<std::string> words = {"replicas are not equal", "key 1 (50000, 4) float32",
                                              "weights, chunk 12 "};
      CHECK(test::throws_on_all(push_again, ErrorCode::divergence, words));
      CHECK(test::throws_on_all(push_again, ErrorCode::divergence, words));
    }
  }
}

TEST_CASE("a checkpoint ends the divergence of rows") {
  if (test::size() != 2) return;
  test::with_folder([](const std::filesystem::path& folder) {
    tutti::Settings settings = with(Verify::full);
    settings.log = tutti::LogLevel::warning;
    KVStore kv = KVStore::create("dist", settings);
    kv.init_row_sparse(1, {50000, 4});
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1}));
    push_rows(kv, {kRow}, filled(1, {1, 4}));
    kv.save(folder / "saved");
    flip(kv, 1, 32 * (4 * kRow + 1) + 30, 0);
    push_rows(kv, {kRow}, filled(1, {1, 4}));
    CHECK(test::throws_on_all(
        [&] {
          push_rows(kv, {3}, filled(1, {1, 4}));
        },
        ErrorCode::divergence, {"key 1"}));
    kv.load(folder / "saved");
    const std::string said = test::written_by([&] { push_rows(kv, {kRow}, filled(1, {1, 4})); });
    CHECK(said.empty());
    CHECK(kv.view(1).values<float>()[4 * kRow] == -4);
  });
}

TEST_CASE("a flipped bit of the state of a row is found and named") {
  if (test::size() < 2) return;
  for (const Verify verify : {Verify::full, Verify::sampled}) {
    KVStore kv = store_with(verify);
    kv.init_row_sparse(5, {50000, 4});
    kv.set_optimizer(std::make_shared<FlippedState>(0, 3, 4 * 299 + 2));
    std::vector<std::int64_t> ids(300);
    std::iota(ids.begin(), ids.end(), 4000);
    const Tensor rows = filled(1, {300, 4});
    const int pushes = verify == Verify::full ? 2 : 300;  // one reads it, the next one compares
    const auto push_often = [&] {
      for (int push = 0; push < 3 + pushes; ++push) push_rows(kv, ids, rows, 5);
    };
    check_found(kv, push_often, {"key 5", "state 0 of flipped-state", "chunk 1"});
  }
}

TEST_CASE("a push of rows that replaces what differed says so") {
  if (test::size() < 2) return;
  tutti::Settings settings = with(Verify::full);
  settings.log = tutti::LogLevel::warning;
  KVStore kv = KVStore::create("dist", settings);
  kv.init_row_sparse(1, {50000, 4});
  push_rows(kv, {kRow}, filled(1, {1, 4}));
  flip(kv, 1, 32 * (4 * kRow + 1) + 30, test::size() - 1);
  push_rows(kv, {kRow}, filled(2, {1, 4}));
  const std::string said = test::written_by([&] { push_rows(kv, {3}, filled(2, {1, 4})); });
  const bool is_said =
      said.find(
          "rows differed between ranks before the last push of rows of key 1 (50000, 4) "
          "float32, which has made them equal") != std::string::npos;
  CHECK(is_said == (test::rank() == 0));
  CHECK(healed_by_pushes(kv) == 0);
  CHECK(kv.view(1).values<float>()[4 * kRow + 1] == 2.0f * static_cast<float>(test::size()));
}

TEST_CASE("equal tables raise no alarm, whoever pushes which rows") {
  for (const char* optimizer : {"sgd,momentum=0.9", "adam", "adagrad"}) {
    for (const Verify verify : {Verify::full, Verify::sampled}) {
      KVStore kv = store_with(verify);
      kv.init_row_sparse(1, {500, 3});
      kv.init_row_sparse(2, {20000, 70});
      kv.set_optimizer(tutti::optimizer::create(optimizer));
      std::mt19937 engine(17 + static_cast<unsigned>(test::rank()));
      for (int push = 0; push < 100; ++push) {
        std::vector<std::int64_t> ids(engine() % 20);  // none, too
        for (std::int64_t& id : ids) id = static_cast<std::int64_t>(engine() % 500);
        const auto count = static_cast<std::int64_t>(ids.size());
        push_rows(kv, ids, filled(0.1 * test::one_plus_rank(), {count, 3}));
        push_rows(kv, ids, filled(0.1, {count, 70}), 2);
      }
      CHECK(healed_by_pushes(kv) == 0);
    }
  }
}
