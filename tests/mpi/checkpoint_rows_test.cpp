// SPDX-License-Identifier: Apache-2.0
// Row-sparse keys in checkpoints.
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/mpi/rows_reference.hpp"

using test::Rows;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr const char* kOptimizer = "adam,learning_rate=0.05";

void start(KVStore& kv) {
  kv.set_optimizer(tutti::optimizer::create(kOptimizer));
  kv.init_row_sparse(3, test::random_tensor(test::kTable, tutti::DType::float32, 0));
  kv.init_row_sparse(4, {100000, 8});
  kv.init(5, test::filled(1));
}

void train(KVStore& kv, std::uint64_t first, std::uint64_t last) {
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
    start(whole);
    train(whole, 1, 4);
    whole.save(folder / "run");
    whole.save_optimizer_states(folder / "states");
    KVStore with_keys = test::dist();
    start(with_keys);
    with_keys.load(folder / "run");
    KVStore without = test::dist();
    without.set_optimizer(tutti::optimizer::create(kOptimizer));
    without.load(folder / "run");
    CHECK(are_equal(whole, without));
    KVStore by_states = test::dist();
    start(by_states);
    by_states.load(folder / "run");
    by_states.load_optimizer_states(folder / "states");
    for (KVStore* kv : {&whole, &with_keys, &without, &by_states}) train(*kv, 4, 7);
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
