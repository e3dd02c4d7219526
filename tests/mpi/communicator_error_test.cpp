// SPDX-License-Identifier: Apache-2.0
// Collectives that are called wrongly: an error on every rank, and a communicator that works on.
#include <string>
#include <vector>

#include "tests/mpi/layouts.hpp"
#include "tests/mpi/oracle.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::ReduceOp;
using tutti::Tensor;

namespace {

Communicator new_world() { return Communicator::world(test::settings()); }

void check_usable(Communicator& world, test::Place where = test::Place::current()) {
  Tensor tensor = Tensor::full({300}, test::rank() + 1);
  world.allreduce(tensor);
  const auto sum = static_cast<float>(test::size() * (test::size() + 1) / 2);
  CHECK(test::agree(tensor.values<float>()[299] == sum, where));
}

}  // namespace

TEST_CASE("an output of another shape or dtype is refused with both") {
  Communicator world = new_world();
  const Tensor input = Tensor::ones({2, 3});
  Tensor other_shape = Tensor::ones({3, 2});
  Tensor other_dtype = Tensor::ones({2, 3}, DType::int32);
  const auto code = ErrorCode::invalid_argument;
  CHECK(test::throws_on_all([&] { world.allreduce(input, other_shape); }, code,
                            {"(2, 3)", "(3, 2)"}));
  CHECK(test::throws_on_all([&] { world.allreduce(input, other_dtype); }, code,
                            {"float32", "int32"}));
  check_usable(world);
}

TEST_CASE("an output that is refused on one rank is refused on all, naming the rank") {
  Communicator world = new_world();
  const Tensor input = Tensor::ones({2, 3});
  for (int wrong = 0; wrong < test::size(); ++wrong) {
    Tensor output = Tensor::full(test::rank() == wrong ? tutti::Shape{7} : tutti::Shape{2, 3}, 9);
    CHECK(test::throws_on_all([&] { world.allreduce(input, output); }, ErrorCode::invalid_argument,
                              {"rank " + std::to_string(wrong), "(2, 3)", "(7)"}));
    CHECK(test::agree(output.values<float>()[5] == 9));
    check_usable(world);
  }
}

TEST_CASE("a root that is no rank is refused with the root and the number of ranks") {
  Communicator world = new_world();
  Tensor tensor = Tensor::ones({3});
  for (const int root : {-1, test::size(), 1000}) {
    CHECK(test::throws_on_all([&] { world.broadcast(tensor, root); }, ErrorCode::invalid_argument,
                              {std::to_string(root), "0 to " + std::to_string(test::size() - 1)}));
  }
  check_usable(world);
}

TEST_CASE("another size on one rank is a mismatch on all, small or large, and writes nothing") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::int64_t count : {0, 5, 400, 300000}) {
      Tensor tensor = Tensor::full({test::is_last() ? count + 1 : count}, test::rank());
      CHECK(test::throws_on_all([&] { world.allreduce(tensor); }, ErrorCode::mismatch, {"rank"}));
      const Tensor untouched = Tensor::full(tensor.shape(), test::rank());
      CHECK(test::agree(test::same_bits(tensor, untouched)));
    }
    check_usable(world);
  }
}

TEST_CASE("another dtype, operation or call on one rank is a mismatch on all") {
  Communicator world = new_world();
  const auto code = ErrorCode::mismatch;
  Tensor dtype = Tensor::ones({8}, test::is_last() ? DType::int32 : DType::float32);
  CHECK(test::throws_on_all([&] { world.allreduce(dtype); }, code, {"rank", "int32", "float32"}));
  Tensor tensor = Tensor::ones({8});
  CHECK(test::throws_on_all(
      [&] { world.allreduce(tensor, test::is_last() ? ReduceOp::max : ReduceOp::min); }, code,
      {"rank", "max", "min"}));
  CHECK(test::throws_on_all([&] { test::is_last() ? world.allreduce(tensor) : world.barrier(); },
                            code, {"rank", "allreduce", "barrier"}));
  CHECK(test::throws_on_all(
      [&] { test::is_last() ? world.allreduce(tensor) : world.broadcast(tensor, 0); }, code,
      {"rank", "allreduce", "broadcast"}));
  CHECK(test::throws_on_all([&] { world.broadcast(tensor, test::is_last() ? 1 : 0); }, code,
                            {"rank"}));
  check_usable(world);
}

TEST_CASE("more memory than the arena may have is out_of_memory on the caller, with both sizes") {
  tutti::Settings settings = test::settings();
  settings.arena_bytes = std::size_t{32} << 20;
  Communicator world = Communicator::world(settings);
  CHECK(test::throws_on_all([&] { (void)world.allocate({std::int64_t{1} << 30}); },
                            ErrorCode::out_of_memory, {"4096 MiB", "32 MiB"}));
  check_usable(world);
}
