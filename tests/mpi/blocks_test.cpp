// SPDX-License-Identifier: Apache-2.0
// Collectives in which every rank has a block of its own, between processes.
#include "tests/support/blocks.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/mpi_test.hpp"

using test::Counts;
using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::ReduceOp;
using tutti::Tensor;

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr auto kMismatch = ErrorCode::mismatch;

Communicator new_world() { return Communicator::world(test::settings()); }

std::size_t ranks() { return static_cast<std::size_t>(test::size()); }

bool is_usable(Communicator& world) { return test::agree(test::alltoall_is_right(world, 3, true)); }

/// One element per rank.
Tensor ones() { return Tensor::ones({test::size()}); }

}  // namespace

TEST_CASE("blocks of sizes 0, 1, odd and large reach their ranks, in every layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::size_t count : {0, 1, 7, 1000, 40001}) {
      for (const bool shared : {true, false, test::rank() % 2 == 0}) {
        CHECK(test::agree(test::blocks_are_right(world, count, shared)));
      }
    }
  }
}

TEST_CASE("blocks take every path through a node, that through the kernel among them") {
  tutti::Settings settings = test::settings();
  settings.algorithms = "paths=in-turn";
  Communicator world = Communicator::world(settings);
  for (int turn = 0; turn < 12; ++turn) {
    for (const std::size_t count : {200, 30001}) {
      for (const bool shared : {true, false, test::rank() % 2 == 0}) {
        CHECK(test::agree(test::blocks_are_right(world, count, shared)));
      }
    }
  }
}

TEST_CASE("a root that is no rank, on one rank, is refused on all") {
  Communicator world = new_world();
  const int root = test::is_last() ? test::size() : 0;
  const std::vector<std::string> words = {test::last(), "is not a rank; expected 0 to"};
  Tensor block = Tensor::ones({1});
  Tensor all = ones();
  CHECK(test::throws_on_all([&] { world.gather(block, all, root); }, kInvalid, words));
  CHECK(test::throws_on_all([&] { world.scatter(all, block, root); }, kInvalid, words));
  CHECK(is_usable(world));
}

TEST_CASE("tensors that do not fit are refused on all ranks, by every call") {
  Communicator world = new_world();
  Tensor block = Tensor::ones({2});
  Tensor all = Tensor::ones({2 * test::size() + 1});
  Tensor integers = Tensor::ones({2 * test::size()}, DType::int32);
  const Counts counts(ranks(), 2);
  const std::vector<std::string> fit = {"do not fit: one side holds one block per rank"};
  CHECK(test::throws_on_all([&] { world.gather(block, all, 0); }, kInvalid, fit));
  CHECK(test::throws_on_all([&] { world.scatter(all, block, 0); }, kInvalid, fit));
  CHECK(test::throws_on_all([&] { world.alltoall(all, integers); }, kInvalid,
                            {"alltoall: input", "must have one dtype"}));
  CHECK(test::throws_on_all([&] { world.alltoall(all, Tensor::ones({1})); }, kInvalid,
                            {"must both hold " + std::to_string(test::size()) + " equal blocks"}));
  CHECK(test::throws_on_all([&] { world.alltoall(all, all); }, kInvalid,
                            {"input and output overlap; they must be apart"}));
  CHECK(test::throws_on_all([&] { world.allgatherv(block, all, counts); }, kInvalid,
                            {"counts of the output do not add up to its"}));
  CHECK(test::throws_on_all([&] { world.reduce_scatter(all, block, counts); }, kInvalid,
                            {"counts of the input do not add up to its"}));
  CHECK(test::throws_on_all(
      [&] {
        world.reduce_scatter(integers, Tensor::ones({2}, DType::int32), counts, ReduceOp::avg);
      },
      kInvalid, {"reduce_scatter: avg of int32"}));
  CHECK(test::throws_on_all([&] { world.alltoallv(block, counts, all, counts); }, kInvalid,
                            {"alltoallv: counts of the"}));
  CHECK(is_usable(world));
}

TEST_CASE("counts that are not one per rank, or not this rank's, are refused on all ranks") {
  Communicator world = new_world();
  Tensor all = ones();
  Tensor output = ones();
  const Counts many(ranks() + 1, 1);
  const Counts right(ranks(), 1);
  CHECK(test::throws_on_all([&] { world.alltoallv(all, many, output, right); }, kInvalid,
                            {"counts of the input: expected", "one per rank"}));
  CHECK(test::throws_on_all([&] { world.alltoallv(all, right, output, many); }, kInvalid,
                            {"counts of the output: expected", "one per rank"}));
  const std::int64_t wrong = test::is_last() ? 2 : 1;
  Tensor mine = Tensor::ones({wrong});
  CHECK(test::throws_on_all([&] { world.allgatherv(mine, output, right); }, kInvalid,
                            {test::last(), "has not the 1 elements"}));
  CHECK(test::throws_on_all([&] { world.reduce_scatter(all, mine, right); }, kInvalid,
                            {test::last(), "has not the 1 elements"}));
  const Counts huge(ranks(), ~std::size_t{0});
  CHECK(test::throws_on_all([&] { world.alltoallv(all, huge, output, right); }, kInvalid,
                            {"do not add up"}));
  CHECK(is_usable(world));
}

TEST_CASE("calls that differ between ranks are a mismatch on all, which names both") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  const bool last = test::is_last();
  Tensor block = Tensor::ones({2});
  Tensor all = Tensor::ones({2 * test::size()});
  Tensor output = Tensor::zeros({2 * test::size()});
  const auto differs = [&](const std::function<void()>& body,
                           const std::vector<std::string>& words) {
    CHECK(test::throws_on_all(body, kMismatch, words));
    CHECK(is_usable(world));
  };
  differs([&] { last ? world.barrier() : world.gather(block, all, 0); },
          {"called gather of (2) float32 to rank 0", test::last() + " (", "called barrier"});
  differs([&] { world.gather(block, output, last ? 1 : 0); }, {"to rank 0", "to rank 1"});
  differs([&] { world.scatter(all, block, last ? 1 : 0); }, {"from rank 0", "from rank 1"});
  differs([&] { last ? world.scatter(all, block, 0) : world.gather(block, output, 0); },
          {"scatter of", "gather of"});
  differs([&] { last ? world.alltoall(all, output) : world.allreduce(all, output); },
          {"alltoall of", "allreduce (sum) of"});
  Tensor half = Tensor::ones({test::size()});
  Tensor half_output = Tensor::zeros({test::size()});
  differs([&] { last ? world.alltoall(half, half_output) : world.alltoall(all, output); },
          {"alltoall of (" + std::to_string(test::size()) + ")"});
  Counts one(ranks(), 0);
  Counts other(ranks(), 0);
  one.front() = 2 * ranks();
  other.back() = 2 * ranks();
  const Counts& mine = last ? other : one;
  Tensor input =
      Tensor::ones({static_cast<std::int64_t>(mine[static_cast<std::size_t>(test::rank())])});
  differs([&] { world.allgatherv(input, output, mine); }, {"allgatherv of"});
  differs([&] { world.reduce_scatter(all, input, mine); }, {"reduce_scatter (sum) to blocks of"});
}

TEST_CASE("what one rank gives and another does not expect is refused on all, naming both") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  const Counts even(ranks(), 2);
  Counts odd = even;
  odd.front() = 3;
  odd[1] = 1;
  Tensor input = Tensor::ones({2 * test::size()});
  Tensor output = Tensor::full({2 * test::size()}, 5);
  const Counts& given = test::is_last() ? odd : even;
  CHECK(test::throws_on_all([&] { world.alltoallv(input, given, output, even); }, kInvalid,
                            {"alltoallv: " + test::last() +
                             " gives 3 elements to rank 0, which "
                             "expects 2; nothing was changed"}));
  CHECK(test::agree(output.values<float>()[0] == 5.0f));
  CHECK(is_usable(world));
}

TEST_CASE("alltoallv of another type on one rank is a mismatch") {
  if (test::size() == 1) return;
  Communicator world = new_world();
  const Counts even(ranks(), 1);
  const DType dtype = test::is_last() ? DType::int32 : DType::float32;
  Tensor input = Tensor::ones({test::size()}, dtype);
  Tensor output = Tensor::zeros({test::size()}, dtype);
  CHECK(test::throws_on_all([&] { world.alltoallv(input, even, output, even); }, kMismatch,
                            {"alltoallv of int32", "alltoallv of float32"}));
  CHECK(is_usable(world));
}

TEST_CASE("many calls of blocks in a row, with some ranks slow, stay apart") {
  Communicator world = new_world();
  bool right = true;
  for (int i = 0; i < 200; ++i) {
    if (i % 40 == test::rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const auto count = static_cast<std::size_t>(1 + (i * 37) % 900);
    right = test::blocks_are_right(world, count, i % 3 == 0) && right;
  }
  CHECK(test::agree(right));
}
