// SPDX-License-Identifier: Apache-2.0
// Reductions by operations of the program's own.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/mpi_test.hpp"

using tutti::Communicator;
using tutti::ConstTensorView;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Tensor;
using tutti::TensorView;
using tutti::UserOp;

namespace {

Communicator new_world() { return Communicator::world(test::settings()); }

/// Neither commutative nor associative in its rounding, so that another order or another tree
/// shows.
float half_of_left(float left, float right) { return 0.5f * left + 1.25f * right; }

UserOp mixing(bool elementwise, bool pure = false) {
  return {.name = "mix",
          .combine =
              [](const TensorView& left, const ConstTensorView& right) {
                auto values = left.values<float>();
                const auto others = right.values<float>();
                for (std::size_t i = 0; i < values.size(); ++i) {
                  values[i] = half_of_left(values[i], others[i]);
                }
              },
          .elementwise = elementwise,
          .pure = pure};
}

float input_of(int rank, std::int64_t i) {
  return static_cast<float>((rank + 1) * 37 % 11) + 0.001f * static_cast<float>(i % 1013);
}

float mixed(int first, int count, std::int64_t i) {
  if (count == 1) return input_of(first, i);
  int left = 1;
  while (2 * left < count) left *= 2;
  return half_of_left(mixed(first, left, i), mixed(first + left, count - left, i));
}

Tensor inputs(Communicator& world, bool shared, std::int64_t count) {
  Tensor tensor = shared ? world.allocate({count}) : Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.values<float>()[static_cast<std::size_t>(i)] = input_of(test::rank(), i);
  }
  return tensor;
}

bool are_mixed(const Tensor& tensor, std::int64_t first) {
  const auto values = tensor.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != mixed(0, test::size(), first + static_cast<std::int64_t>(i))) return false;
  }
  return true;
}

bool all_right(Communicator& world, std::int64_t count, bool shared, const UserOp& op) {
  const Tensor input = inputs(world, shared, count);
  Tensor output = inputs(world, !shared, count);
  world.allreduce(input, output, op);
  bool right = are_mixed(output, 0);
  world.allreduce(output = inputs(world, shared, count), op);
  right = are_mixed(output, 0) && right;
  const int root = test::size() / 2;
  output.fill(-5);
  world.reduce(input, output, root, op);
  if (test::rank() == root) right = are_mixed(output, 0) && right;
  if (test::rank() != root && count > 0) right = output.values<float>()[0] == -5 && right;
  const Tensor blocks = inputs(world, shared, count * test::size());
  world.reduce_scatter(blocks, output, op);
  return are_mixed(output, count * test::rank()) && right;
}

/// Products of 2 x 2 matrices: no element stands by itself.
UserOp product() {
  return {.name = "matrix product",
          .combine = [](const TensorView& left, const ConstTensorView& right) {
            auto a = left.values<std::int64_t>();
            const auto b = right.values<std::int64_t>();
            const std::int64_t whole[] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                                          a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
            if (left.shape() != tutti::Shape{2, 2}) throw std::runtime_error("not a matrix");
            std::copy(std::begin(whole), std::end(whole), a.begin());
          }};
}

}  // namespace

TEST_CASE("an operation of the program's own is applied in the canonical tree, in every layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::int64_t count : {0, 1, 7, 1000, 20011}) {
      for (const bool shared : {true, false, test::rank() % 2 == 0}) {
        for (const bool elementwise : {true, false}) {
          CHECK(test::agree(all_right(world, count, shared, mixing(elementwise))));
          if (count > 1000) continue;
          CHECK(test::agree(all_right(world, count, shared, mixing(elementwise, /*pure=*/true))));
        }
      }
    }
  }
}

TEST_CASE("matrices are multiplied whole, in the order of ranks") {
  Communicator world = new_world();
  Tensor matrix = Tensor::ones({2, 2}, DType::int64);
  matrix.values<std::int64_t>()[0] = test::rank() + 1;
  std::int64_t expected[] = {1, 1, 1, 1};
  for (int rank = 1; rank < test::size(); ++rank) {
    const std::int64_t next = rank + 1;
    for (int row = 0; row < 2; ++row) {
      std::int64_t* const at = expected + 2 * row;
      const std::int64_t first = at[0] * next + at[1];
      at[1] = at[0] + at[1];
      at[0] = first;
    }
  }
  world.allreduce(matrix, product());
  const auto values = matrix.values<std::int64_t>();
  CHECK(test::agree(std::equal(values.begin(), values.end(), std::begin(expected))));
}

TEST_CASE("what an operation throws on one rank comes out on all as user_code") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  const int thrower = test::size() - 1;
  const UserOp failing{.name = "fails",
                       .combine =
                           [&](const TensorView&, const ConstTensorView&) {
                             if (test::rank() == thrower) throw std::runtime_error("no such sum");
                           },
                       .elementwise = true};
  Tensor tensor = Tensor::full({test::size()}, 3);
  Tensor block = Tensor::full({1}, 4);
  const std::vector<std::string> words = {"rank " + std::to_string(thrower), "(fails, elementwise)",
                                          "the operation threw: no such sum"};
  CHECK(
      test::throws_on_all([&] { world.allreduce(tensor, failing); }, ErrorCode::user_code, words));
  CHECK(test::throws_on_all([&] { world.reduce(tensor, tensor, 0, failing); }, ErrorCode::user_code,
                            words));
  CHECK(test::throws_on_all([&] { world.reduce_scatter(tensor, block, failing); },
                            ErrorCode::user_code, words));
  CHECK(test::agree(tensor.values<float>()[0] == 3 && block.values<float>()[0] == 4));
  const UserOp whole{.name = "fails",
                     .combine = [](const TensorView&, const ConstTensorView&) { throw 7; }};
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, whole); }, ErrorCode::user_code,
                            {"rank 0", "an exception of unknown type"}));
  CHECK(test::throws_on_all([&] { world.reduce(tensor, tensor, 1, whole); }, ErrorCode::user_code,
                            {"rank 1", "reduce (fails) of", "to rank 1"}));
  CHECK(test::agree(all_right(world, 10, true, mixing(true))));
}

TEST_CASE("every rank combines the few bytes of a pure operation, in one meeting") {
  Communicator world = new_world();
  const std::int64_t most = 2048 / test::size();  // floats: 8 KiB of all ranks together
  for (const bool elementwise : {true, false}) {
    for (const std::int64_t count : {std::int64_t{1}, most, most + 1}) {
      int combined = 0;
      UserOp op = mixing(elementwise, /*pure=*/true);
      op.combine = [&combined, mix = op.combine](const TensorView& left,
                                                 const ConstTensorView& right) {
        ++combined;
        mix(left, right);
      };
      Tensor tensor = inputs(world, false, count);
      world.allreduce(tensor, op);
      CHECK(test::agree(are_mixed(tensor, 0)));
      const bool by_all = combined == test::size() - 1;
      CHECK(test::agree(count > most ? elementwise || by_all == (test::rank() == 0) : by_all));
    }
  }
}

TEST_CASE(
    "what a pure operation throws comes out on all ranks, or in the next call of the others") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  int throwers = test::size();  // the last so many ranks
  const UserOp failing{.name = "fails",
                       .combine =
                           [&](const TensorView&, const ConstTensorView&) {
                             if (test::size() - test::rank() <= throwers) {
                               throw std::runtime_error("no such sum");
                             }
                           },
                       .elementwise = true,
                       .pure = true};
  const std::vector<std::string> words = {"(fails, elementwise, pure)",
                                          "the operation threw: no such sum"};
  Tensor tensor = Tensor::full({3}, 3);
  CHECK(
      test::throws_on_all([&] { world.allreduce(tensor, failing); }, ErrorCode::user_code, words));
  CHECK(test::throws_on_all([&] { world.reduce(tensor, tensor, 1, failing); }, ErrorCode::user_code,
                            words));
  CHECK(test::agree(tensor.values<float>()[0] == 3));
  throwers = 1;
  CHECK(test::throws_on_all(
      [&] {
        world.allreduce(tensor, failing);  // throws on the last rank, and returns on the others
        world.barrier();
      },
      ErrorCode::user_code, words));
  CHECK(test::agree(all_right(world, 10, true, mixing(true, true))));
}

TEST_CASE("an operation without a function, or one that differs, is an error on all ranks") {
  Communicator world = new_world();
  Tensor tensor = Tensor::ones({5});
  const UserOp nothing{.name = "nothing", .combine = {}};
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, nothing); }, ErrorCode::invalid_argument,
                            {"allreduce: the operation 'nothing' has no function"}));
  CHECK(test::throws_on_all([&] { world.reduce(tensor, tensor, 99, mixing(true)); },
                            ErrorCode::invalid_argument, {"root 99 is not a rank"}));
  CHECK(test::throws_on_all([&] { world.reduce_scatter(tensor, Tensor::ones({7}), mixing(true)); },
                            ErrorCode::invalid_argument, {"do not fit"}));
  if (test::size() == 1) return;
  UserOp other = mixing(true);
  if (test::is_last()) other.name = "mox";
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, other); }, ErrorCode::mismatch,
                            {"allreduce (mix, elementwise)", "allreduce (mox, elementwise)"}));
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, mixing(test::is_last())); },
                            ErrorCode::mismatch, {"(mix, elementwise)", "(mix) of"}));
  CHECK(test::throws_on_all([&] { world.allreduce(tensor, mixing(true, test::is_last())); },
                            ErrorCode::mismatch, {"(mix, elementwise)", "elementwise, pure) of"}));
  CHECK(test::throws_on_all(
      [&] { test::is_last() ? world.allreduce(tensor) : world.allreduce(tensor, mixing(true)); },
      ErrorCode::mismatch, {"allreduce (mix, elementwise) of (5)", "allreduce (sum) of (5)"}));
  CHECK(test::agree(all_right(world, 10, true, mixing(false))));
}
