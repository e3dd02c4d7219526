// SPDX-License-Identifier: Apache-2.0
// pushpull of values so large that the reduction writes the outputs itself.
#include <vector>

#include "tests/mpi/oracle.hpp"
#include "tests/mpi/store_fixture.hpp"

using tutti::ConstTensorView;
using tutti::DType;
using tutti::Key;
using tutti::KVStore;
using tutti::ReduceOp;
using tutti::Shape;
using tutti::Tensor;

namespace {

const Shape kShape{70001};  // above the size from which outputs are written directly

Tensor pushed(std::uint64_t salt) {
  return test::random_tensor(kShape, DType::float32, test::rank(), salt);
}

Tensor expected(std::uint64_t salt) {
  return test::reduced_random(ReduceOp::sum, kShape, DType::float32, test::size(), salt);
}

/// A store whose key k holds zeros, k = 0 .. keys - 1.
KVStore store_of(int keys) {
  KVStore kv = test::dist();
  for (int key = 0; key < keys; ++key) kv.init(key, Tensor::zeros(kShape));
  return kv;
}

bool holds(const KVStore& kv, int key, const Tensor& value) {
  return test::same_bits(test::stored(kv, key), value);
}

Tensor in_store(KVStore& kv, const ConstTensorView& value) {
  Tensor tensor = kv.allocate(kShape);
  tutti::TensorView(tensor).copy_from(value);
  return tensor;
}

}  // namespace

TEST_CASE("pushpull fills outputs in the store's memory, in ordinary memory, and in both") {
  for (const bool first_shared : {true, false}) {
    for (const bool second_shared : {true, test::rank() % 2 == 0, false}) {
      KVStore kv = store_of(2);
      const Tensor a = first_shared ? in_store(kv, pushed(1)) : pushed(1);
      const Tensor b = second_shared ? in_store(kv, pushed(2)) : pushed(2);
      Tensor a_out = second_shared ? kv.allocate(kShape) : Tensor::zeros(kShape);
      Tensor b_out = first_shared ? kv.allocate(kShape) : Tensor::zeros(kShape);
      kv.pushpull({1, 0}, {a, b}, {a_out, b_out});
      CHECK(test::agree(test::same_bits(a_out, expected(1))));
      CHECK(test::agree(test::same_bits(b_out, expected(2))));
      CHECK(test::agree(holds(kv, 1, expected(1))));
      CHECK(test::agree(holds(kv, 0, expected(2))));
      CHECK(test::agree(test::same_bits(a, pushed(1))));
    }
  }
}

TEST_CASE("pushpull over the values, and into several outputs of a key") {
  KVStore kv = store_of(2);
  Tensor value = in_store(kv, pushed(3));
  kv.pushpull(0, value);
  CHECK(test::agree(test::same_bits(value, expected(3))));
  Tensor more = kv.allocate(kShape);
  Tensor third = Tensor::zeros(kShape);
  tutti::TensorView(value).copy_from(pushed(4));
  kv.pushpull(1, value, {value, more, third});
  CHECK(test::agree(test::same_bits(value, expected(4))));
  CHECK(test::agree(test::same_bits(more, expected(4))));
  CHECK(test::agree(test::same_bits(third, expected(4))));
  CHECK(test::agree(holds(kv, 1, expected(4))));
}

TEST_CASE("an output that is another key's value is written after that value was summed") {
  KVStore kv = store_of(2);
  Tensor a = in_store(kv, pushed(5));
  Tensor b = in_store(kv, pushed(6));
  kv.pushpull({0, 1}, {a, b}, {b, a});
  CHECK(test::agree(test::same_bits(b, expected(5))));
  CHECK(test::agree(test::same_bits(a, expected(6))));
  CHECK(test::agree(holds(kv, 0, expected(5))));
  CHECK(test::agree(holds(kv, 1, expected(6))));
}

TEST_CASE("one output of two keys has the value of the last") {
  KVStore kv = store_of(2);
  const Tensor a = in_store(kv, pushed(7));
  const Tensor b = in_store(kv, pushed(8));
  Tensor out = kv.allocate(kShape);
  kv.pushpull({0, 1}, {a, b}, {out, out});
  CHECK(test::agree(test::same_bits(out, expected(8))));
}

TEST_CASE("an output that one rank alone gives is filled, too") {
  KVStore kv = store_of(1);
  const Tensor value = in_store(kv, pushed(9));
  Tensor out = test::rank() == 0 ? kv.allocate(kShape) : Tensor::zeros(kShape);
  kv.pushpull(0, value, out);
  CHECK(test::agree(test::same_bits(out, expected(9))));
  CHECK(test::agree(holds(kv, 0, expected(9))));
}

TEST_CASE("with an updater, outputs get what it has stored") {
  KVStore kv = store_of(1);
  kv.set_updater(
      [](const Key&, ConstTensorView merged, tutti::TensorView stored) { stored += 2 * merged; });
  const Tensor value = Tensor::full(kShape, test::one_plus_rank());
  Tensor out = kv.allocate(kShape);
  kv.pushpull(0, value, out);
  CHECK(test::all_are(out, 2 * test::sum_of_ranks()));
}
