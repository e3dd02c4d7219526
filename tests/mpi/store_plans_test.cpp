// SPDX-License-Identifier: Apache-2.0
// What is kept from one pull or pushpull to the next never shows: lists, memory and rules that
// change between them.
#include <span>
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/store_fixture.hpp"

using test::all_are;
using test::filled;
using test::one_plus_rank;
using test::sum_of_ranks;
using tutti::Cast;
using tutti::DType;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

void push_all(KVStore& kv, std::span<const Key> keys, float factor) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values.push_back(filled(factor * static_cast<float>(i + 1) * one_plus_rank()));
  }
  kv.push(keys, values);
}

KVStore with_keys(std::span<const Key> keys) {
  KVStore kv = test::dist();
  for (const Key& key : keys) kv.init(key, filled(0));
  return kv;
}

/// Results of any size are written into their outputs at once.
KVStore with_direct_outputs() {
  tutti::Settings settings = test::settings();
  settings.algorithms = "direct-outputs=0";
  KVStore kv = KVStore::create("dist", settings);
  kv.init({1, 2}, {filled(0), filled(0)});
  return kv;
}

/// What is pushed to the keys 1 and 2, and memory for what comes back.
struct TwoKeys {
  KVStore kv = with_direct_outputs();
  Tensor one = filled(one_plus_rank());
  Tensor ten = filled(10 * one_plus_rank());
  Tensor first = filled(0);
  Tensor second = filled(0);

  void pushpull() { kv.pushpull({1, 2}, {one, ten}, {first, second}); }
};

bool hold(const Tensor& first, double first_sum, const Tensor& second, double second_sum) {
  const auto sum = static_cast<double>(sum_of_ranks());
  return all_are(first, static_cast<float>(first_sum * sum)) &&
         all_are(second, static_cast<float>(second_sum * sum));
}

}  // namespace

TEST_CASE("pulls of the same list, and of others in between, give what was pushed last") {
  const std::vector<Key> keys = {1, 2};
  KVStore kv = with_keys(keys);
  Tensor a = filled(0);
  Tensor b = filled(0);
  for (int step = 1; step <= 6; ++step) {
    const auto factor = static_cast<float>(step);
    push_all(kv, keys, factor);
    kv.pull({1, 2}, {a, b});
    CHECK(test::agree(hold(a, factor, b, 2 * factor)));
    if (step % 2 == 0) continue;  // the next one has the plan of this one
    kv.pull({2, 1}, {a, b});
    CHECK(test::agree(hold(a, 2 * factor, b, factor)));
    kv.pull({1, 2}, {b, a});
    CHECK(test::agree(hold(b, factor, a, 2 * factor)));
    kv.pull(1, {a, b});
    CHECK(test::agree(hold(a, factor, b, factor)));
    kv.pull({2, 2}, {a, b});
    CHECK(test::agree(hold(a, 2 * factor, b, 2 * factor)));
    Tensor c = filled(0);
    kv.pull({1, 2}, {{a, b}, {c}});
    CHECK(test::agree(hold(b, factor, c, 2 * factor) && hold(a, factor, c, 2 * factor)));
    kv.pull({1, 2}, {{a}, {b, c}});
    CHECK(test::agree(hold(a, factor, b, 2 * factor) && hold(a, factor, c, 2 * factor)));
  }
}

TEST_CASE("a pull that was refused, or may convert, leaves no plan for one that may not") {
  const std::vector<Key> keys = {1, 2};
  KVStore kv = with_keys(keys);
  push_all(kv, keys, 1);
  Tensor a = filled(0);
  Tensor wide = Tensor::zeros({2, 3}, DType::float64);
  for (int turn = 0; turn < 2; ++turn) {
    kv.pull({1, 2}, {a, wide}, Cast::yes);
    CHECK(wide.values<double>()[5] == 2 * sum_of_ranks());
    a.fill(-1);
    const auto pull = [&] { kv.pull({1, 2}, {a, wide}); };
    CHECK(test::is_refusal(test::error_of(pull), tutti::ErrorCode::invalid_argument,
                           {"pull", "key 2", "float64"}));
    CHECK(all_are(a, -1));
    const auto unknown = [&] { kv.pull({1, 3}, {a, a}); };
    CHECK(test::is_refusal(test::error_of(unknown), tutti::ErrorCode::invalid_argument, {"key 3"}));
  }
  kv.barrier();
}

TEST_CASE("a row-sparse key is left out of some pulls, and not of others") {
  KVStore kv = test::dist();
  kv.init(1, filled(4));
  kv.init_row_sparse(2, filled(5));
  Tensor a = filled(0);
  Tensor table = filled(0);
  for (int turn = 0; turn < 2; ++turn) {
    kv.pull({1, 2}, {a, table}, {.ignore_sparse = true});
    CHECK((all_are(a, 4) && all_are(table, 0)));
    kv.pull({1, 2}, {a, table}, {.ignore_sparse = false});
    CHECK((all_are(a, 4) && all_are(table, 5)));
    a.fill(0);
    table.fill(0);
  }
}

TEST_CASE("a pull after a load, or after another key, fills the same memory from what is there") {
  const std::vector<Key> keys = {1, 2};
  KVStore kv = with_keys(keys);
  Tensor a = filled(0);
  Tensor b = filled(0);
  test::with_folder([&](const std::filesystem::path& folder) {
    push_all(kv, keys, 3);
    kv.save(folder);
    push_all(kv, keys, 5);
    kv.pull({1, 2}, {a, b});
    kv.load(folder);
    kv.pull({1, 2}, {a, b});
    CHECK(test::agree(hold(a, 3, b, 6)));
  });
  kv.init(3, filled(7));
  kv.pull({1, 2}, {a, b});
  CHECK(test::agree(hold(a, 3, b, 6)));
  kv.pull({1, 3}, {a, b});
  CHECK(test::agree(all_are(b, 7)));
}

// Where memory is both a value and an output, sums cannot be written while others are made.
TEST_CASE("a pushpull whose outputs are values now writes them after the sums") {
  auto [kv, one, ten, first, second] = TwoKeys();
  for (int turn = 0; turn < 3; ++turn) {
    kv.pushpull({1, 2}, {one, ten}, {first, second});
    CHECK(test::agree(hold(first, 1, second, 10)));
    first.fill(2 * one_plus_rank());
    second.fill(20 * one_plus_rank());
    kv.push({1, 2}, {first, second});
    kv.pushpull({1, 2}, {first, second}, {first, second});  // in place
    CHECK(test::agree(hold(first, 2, second, 20)));
    kv.pushpull({1, 2}, {one, ten}, {second, first});
    CHECK(test::agree(hold(second, 1, first, 10)));
    first.fill(3 * one_plus_rank());
    second.fill(30 * one_plus_rank());
    kv.push({1, 2}, {first, second});
    kv.pushpull({1, 2}, {first, second}, {second, first});  // crosswise
    CHECK(test::agree(hold(second, 3, first, 30)));
    CHECK(test::agree(hold(test::stored(kv, 1), 3, test::stored(kv, 2), 30)));
  }
}

TEST_CASE("an updater that is set between two pushpulls decides what outputs get") {
  TwoKeys two;
  two.pushpull();
  two.kv.set_updater([](const Key&, const auto& merged, const auto& to) { to -= 2.0 * merged; });
  two.pushpull();
  CHECK(test::agree(hold(two.first, -1, two.second, -10)));
  two.kv.set_updater(nullptr);
  two.pushpull();
  CHECK(test::agree(hold(two.first, 1, two.second, 10)));
}
