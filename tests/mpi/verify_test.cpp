// SPDX-License-Identifier: Apache-2.0
// Replicas that differ are found, named and healed.
#include <filesystem>
#include <numeric>
#include <random>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/store_fixture.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/standard_error.hpp"

namespace test {

inline tutti::Settings with(tutti::Verify verify, const Layout& layout = one_node()) {
  tutti::Settings settings = settings_for(layout);
  settings.verify = verify;
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

inline tutti::KVStore store_with(tutti::Verify verify) {
  return tutti::KVStore::create("dist", with(verify));
}

/// What a cosmic ray does, on one rank: a bit of a replica.
inline void flip(const tutti::KVStore& kv, const tutti::Key& key, std::size_t bit, int on_rank) {
  if (rank() != on_rank) return;
  auto* bytes = const_cast<std::byte*>(kv.view(key).bytes());
  bytes[bit / 8] ^= std::byte{1} << bit % 8;
}

/// What pushes have healed: nothing is left for verify() to heal.
inline std::uint64_t healed_by_pushes(tutti::KVStore& kv) {
  const tutti::VerifyResult result = kv.verify();
  CHECK(result.healed == 0);
  return result.healed_since_creation;
}

inline int majority() { return size() / 2 + 1; }
inline bool can_heal() { return size() >= 3; }

/// What `push` meets is healed, if a majority can, or all ranks throw it.
template <class Push>
void check_found(tutti::KVStore& kv, Push push, const std::vector<std::string>& words) {
  if (can_heal()) {
    push();
    CHECK(healed_by_pushes(kv) >= 1);
  } else {
    CHECK(throws_on_all(push, tutti::ErrorCode::divergence, words));
  }
}

/// Keeps the sum of gradients as its state, and on one rank flips one bit of it.
class FlippedState final : public tutti::Optimizer {
 public:
  FlippedState(int on_rank, std::uint64_t at_count, std::size_t element)
      : Optimizer("flipped-state", {}), on_rank_(on_rank), at_(at_count), element_(element) {}
  [[nodiscard]] int num_states() const override { return 1; }
  void update(const tutti::UpdateStep& step,
              const tutti::ElementRange<float>& range) const override {
    float* sum = range.states[0];
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      sum[i] += range.gradient[i];
      range.weight[i] -= 0.5f * sum[i];
    }
    const bool is_here = element_ >= range.first && element_ < range.first + range.weight.size();
    if (is_here && rank() == on_rank_ && step.count == at_) {
      auto* bytes = reinterpret_cast<unsigned char*>(sum + (element_ - range.first));
      bytes[2] ^= 16;
    }
  }
  void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}
  [[nodiscard]] bool updates_rows() const override { return true; }

 private:
  int on_rank_;
  std::uint64_t at_;
  std::size_t element_;
};

}  // namespace test

using test::can_heal;
using test::check_found;
using test::filled;
using test::flip;
using test::FlippedState;
using test::healed_by_pushes;
using test::majority;
using test::store_with;
using test::with;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;
using tutti::Verify;

// --- dense keys ----------------------------------------------------------------------------------

// Replicas that should be equal and are not: found, named, healed where a majority agrees.

TEST_CASE("a flipped bit is healed from the majority before the push uses it") {
  if (!can_heal()) return;
  KVStore kv = store_with(Verify::full);
  kv.init(3, filled(2));
  kv.set_updater(
      [](const Key&, tutti::ConstTensorView sum, tutti::TensorView stored) { stored += sum; });
  flip(kv, 3, 77, /*on_rank=*/test::size() - 1);
  kv.push(3, filled(1));
  CHECK(test::all_are(kv.view(3), 2.0f + static_cast<float>(test::size())));
  CHECK(healed_by_pushes(kv) == 1);
}

TEST_CASE("without a majority every rank throws, says where, and can load") {
  if (test::size() != 2) return;
  test::with_folder([](const std::filesystem::path& folder) {
    KVStore kv = store_with(Verify::full);
    kv.init("weight", filled(2, {300, 100}));
    kv.save(folder / "saved");
    flip(kv, "weight", 8 * (65536 + 40), 1);
    const std::vector<std::string> words = {"replicas are not equal",
                                            "key weight (300, 100) float32",
                                            "weights, chunk 1 (elements 16384 to 29999)",
                                            "on rank 0 (host",
                                            "on rank 1 (host",
                                            "checkpoint"};
    CHECK(test::throws_on_all(
        [&] {
          kv.push("weight", filled(1, {300, 100}));
        },
        ErrorCode::divergence, words));
    CHECK(test::throws_on_all([&] { kv.verify(); }, ErrorCode::divergence, words));
    CHECK(test::throws_on_all([&] { kv.save(folder / "saved"); }, ErrorCode::divergence, words));
    kv.load(folder / "saved");
    CHECK(test::all_are(kv.view("weight"), 2));
    kv.push("weight", filled(1, {300, 100}));
    CHECK(test::all_are(kv.view("weight"), 2));
  });
}

TEST_CASE("a flipped bit of an optimizer's state is found and named") {
  if (test::size() < 2) return;
  const std::size_t count = 5000;
  const tutti::Shape shape = {static_cast<std::int64_t>(count)};
  for (const Verify verify : {Verify::full, Verify::sampled}) {
    KVStore kv = store_with(verify);
    kv.init(5, filled(1, shape));
    kv.set_optimizer(std::make_shared<FlippedState>(0, 3, count - 2));
    const auto push_often = [&] {
      for (int push = 0; push < 400; ++push) kv.push(5, filled(1, shape));
    };
    check_found(kv, push_often, {"key 5", "state 0 of flipped-state", "chunk 0"});
  }
}

TEST_CASE("a thousand flipped bits are healed, in any layout") {
  if (!can_heal()) return;
  std::mt19937 random(7);
  const std::vector<std::int64_t> counts = {1, 3, 1000, 20000};
  for (const test::Layout& layout : {test::one_node(), test::equal_blocks().back()}) {
    KVStore kv = KVStore::create("dist", with(Verify::full, layout));
    std::vector<Tensor> gradients;
    std::vector<Key> keys;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      keys.emplace_back(static_cast<std::int64_t>(i));
      gradients.push_back(filled(static_cast<double>(i), {counts[i]}));
      kv.init(keys.back(), filled(1, {counts[i]}));
    }
    kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.25}));
    for (std::uint64_t flips = 0; flips < 500; ++flips) {
      const auto key = static_cast<std::int64_t>(random() % counts.size());
      const std::size_t bit = random() % static_cast<std::size_t>(32 * counts[key]);
      flip(kv, key, bit, static_cast<int>(random() % static_cast<unsigned>(test::size())));
      kv.push(keys, {gradients[0], gradients[1], gradients[2], gradients[3]});
    }
    CHECK(healed_by_pushes(kv) == 500);
    const auto pushed = static_cast<float>(500 * test::size());
    CHECK(test::all_are(kv.view(3), 1 - 0.25f * 3 * pushed));
  }
}

TEST_CASE("sampling looks at every element within 320 pushes") {
  if (!can_heal()) return;
  for (const std::int64_t count : {1, 1023, 1025, 100000}) {
    CAPTURE(count);
    KVStore kv = store_with(Verify::sampled);
    kv.init(1, filled(1, {count}));
    kv.set_optimizer(tutti::optimizer::sgd({}));
    const Tensor gradient = filled(0, {count});
    for (const std::int64_t element : {std::int64_t{0}, count / 2, count - 1}) {
      const std::uint64_t before = healed_by_pushes(kv);
      flip(kv, 1, static_cast<std::size_t>(32 * element + 5), 1);
      for (int push = 0; push < 320; ++push) kv.push(1, gradient);
      CHECK(healed_by_pushes(kv) == before + 1);
    }
  }
}

TEST_CASE("sampling looks at every key of a long list within 640 pushes") {
  if (!can_heal()) return;
  KVStore kv = store_with(Verify::sampled);
  std::vector<Key> keys;
  std::vector<Tensor> gradients;
  for (std::int64_t i = 0; i < 200; ++i) {
    keys.emplace_back(i);
    gradients.push_back(filled(0, {1 + i * 7}));
    kv.init(i, filled(1, {1 + i * 7}));
  }
  const std::vector<tutti::ConstTensorView> values(gradients.begin(), gradients.end());
  kv.set_optimizer(tutti::optimizer::sgd({}));
  for (const std::int64_t key : {0, 77, 199}) {
    const std::uint64_t before = healed_by_pushes(kv);
    flip(kv, key, 30, 0);
    for (int push = 0; push < 640; ++push) kv.push(keys, values);
    CHECK(healed_by_pushes(kv) == before + 1);
  }
}

TEST_CASE("equal replicas raise no alarm, whatever updates them") {
  for (const char* optimizer :
       {"sgd,momentum=0.9", "adam", "lamb", "sgld", "dcasgd,momentum=0.5"}) {
    CAPTURE(optimizer);
    for (const test::Layout& layout : test::all_layouts()) {
      KVStore kv = KVStore::create("dist", with(Verify::full, layout));
      kv.init({1, 2}, {filled(1, {7}), filled(0.5, {3, 900})});
      kv.set_optimizer(tutti::optimizer::create(optimizer));
      const Tensor small = filled(test::one_plus_rank(), {7});
      const Tensor large = filled(0.1 * test::one_plus_rank(), {3, 900});
      for (int push = 0; push < 20; ++push) {
        kv.push({1, 2}, {small, large});
        kv.push(2, large);
      }
      CHECK(healed_by_pushes(kv) == 0);
    }
  }
}

TEST_CASE("verify looks at keys that are never pushed, and save looks first") {
  if (!can_heal()) return;
  test::with_folder([](const std::filesystem::path& folder) {
    KVStore kv = store_with(Verify::sampled);
    kv.init({1, 2}, {filled(1, {40000}), filled(2)});
    flip(kv, 1, 999999, 2);
    const tutti::VerifyResult result = kv.verify();
    CHECK(result.healed == 1);
    CHECK(result.bytes == 4 * (40000 + 6));
    flip(kv, 2, 3, 0);
    kv.save(folder / "saved");
    CHECK(healed_by_pushes(kv) == 2);
    CHECK(test::all_are(kv.view(2), 2));
  });
}

TEST_CASE("a store without keys, and keys without elements, are equal") {
  KVStore kv = store_with(Verify::full);
  CHECK(kv.verify().bytes == 0);
  kv.init(1, filled(0, {0}));
  kv.push(1, filled(0, {0}));
  CHECK(kv.verify().bytes == 0);
}

TEST_CASE("half of the ranks are no majority") {
  if (test::size() < 4 || test::size() % 2 != 0) return;
  KVStore kv = store_with(Verify::full);
  kv.init(3, filled(2));
  for (int rank = majority() - 1; rank < test::size(); ++rank) flip(kv, 3, 9, rank);
  CHECK(test::throws_on_all([&] { kv.push(3, filled(1)); }, ErrorCode::divergence,
                            {"replicas are not equal", "key 3", "ranks 0", "more than half"}));
}

TEST_CASE("a different call is named first, and flips are healed by the next push") {
  if (!can_heal()) return;
  KVStore kv = store_with(Verify::full);
  kv.init({3, 5}, {filled(2), filled(2)});
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1}));
  flip(kv, 3, 50, 1);
  flip(kv, 5, 50, 1);
  CHECK(test::throws_on_all([&] { kv.push(test::rank() == 0 ? 3 : 5, filled(1)); },
                            ErrorCode::mismatch, {"ranks disagree", "key 3", "key 5"}));
  kv.push({3, 5}, {filled(1), filled(1)});
  CHECK(test::all_are(kv.view(3), 2 - static_cast<float>(test::size())));
  CHECK(test::all_are(kv.view(5), 2 - static_cast<float>(test::size())));
}

TEST_CASE("with verify off nobody looks") {
  KVStore kv = store_with(Verify::off);
  kv.init(3, filled(2));
  kv.set_optimizer(tutti::optimizer::sgd({}));
  flip(kv, 3, 50, 0);
  kv.push(3, filled(0));
  CHECK(kv.view(3).values<float>()[1] != (test::rank() == 0 ? 2.0f : 0.0f));
}

// --- tables of rows ------------------------------------------------------------------------------

// Tables of row-sparse keys that should be equal and are not.

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
