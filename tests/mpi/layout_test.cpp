// SPDX-License-Identifier: Apache-2.0
// What holds of the bits of a sum when the same ranks sit on nodes in different ways.
#include <functional>
#include <vector>

#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::KVStore;
using tutti::ReduceOp;
using tutti::Tensor;

namespace {

const std::vector<std::int64_t> kCounts = {1, 63, 255, 257, 1023, 30011, 300007};

Tensor mine(std::int64_t count, DType dtype) {
  return test::random_tensor({count}, dtype, test::rank(), static_cast<std::uint64_t>(count));
}

// One allreduce per size.
std::vector<Tensor> reduce_all(Communicator world, DType dtype, ReduceOp op = ReduceOp::sum) {
  std::vector<Tensor> results;
  for (const std::int64_t count : kCounts) {
    if (size_of(dtype) == 2 && count > 100000) continue;  // slow to check
    results.push_back(mine(count, dtype));
    world.allreduce(results.back(), op);
  }
  return results;
}

bool all_same(const std::vector<Tensor>& left, const std::vector<Tensor>& right) {
  bool same = left.size() == right.size();
  for (std::size_t i = 0; same && i < left.size(); ++i) same = test::same_bits(left[i], right[i]);
  return same;
}

bool ranks_agree(const std::vector<Tensor>& results) {
  bool same = true;
  for (const Tensor& result : results) same = test::same_on_all(test::bytes_of(result)) && same;
  return same;
}

// One fused push of many keys through a store; what is stored afterwards.
std::vector<Tensor> push_list(const tutti::Settings& settings, bool with_updater) {
  KVStore kv = KVStore::create("dist", settings);
  std::vector<tutti::Key> keys;
  std::vector<Tensor> values;
  for (int key = 0; key < 60; ++key) {
    const std::int64_t count = key == 17 ? 100003 : 1 + key * key;
    keys.emplace_back(key);
    values.push_back(mine(count, key % 3 == 0 ? DType::float64 : DType::float32));
  }
  kv.init(keys, values);
  if (with_updater) {
    kv.set_updater([](const tutti::Key&, tutti::ConstTensorView merged, tutti::TensorView stored) {
      stored -= 0.1 * merged;
    });
  }
  kv.push(keys, values);
  kv.push(keys, values);
  std::vector<Tensor> results;
  for (const tutti::Key& key : keys) {
    const tutti::ConstTensorView view = kv.view(key);
    results.push_back(Tensor::empty(view.shape(), view.dtype()));
    results.back().view().copy_from(view);
  }
  return results;
}

}  // namespace

TEST_CASE("on one node the sum is the canonical tree over ranks, bit by bit") {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int32}) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    const auto results =
        reduce_all(Communicator::world(test::settings_for(test::one_node())), dtype);
    bool right = true;
    for (const Tensor& result : results) {
      right = right &&
              test::same_bits(result, test::reduced_random(ReduceOp::sum, result.shape(), dtype,
                                                           test::size(), result.count()));
    }
    CHECK(test::agree(right));
  }
}

TEST_CASE("nodes of an equal power of two of ranks give the bits of one node: 1x8, 2x4, 4x2, 8x1") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const auto expected =
        reduce_all(Communicator::world(test::settings_for(test::one_node())), dtype);
    for (const test::Layout& layout : test::equal_blocks()) {
      CAPTURE(test::to_string(layout));
      const auto found = reduce_all(Communicator::world(test::settings_for(layout)), dtype);
      CHECK(test::agree(all_same(found, expected)));
    }
  }
}

TEST_CASE("list pushes give the same bits for nodes of an equal power of two of ranks") {
  for (const bool with_updater : {false, true}) {
    const auto expected = push_list(test::settings_for(test::one_node()), with_updater);
    for (const test::Layout& layout : test::equal_blocks()) {
      CAPTURE(test::to_string(layout));
      const auto found = push_list(test::settings_for(layout), with_updater);
      CHECK(test::agree(all_same(found, expected)));
      CHECK(ranks_agree(found));
    }
  }
}

TEST_CASE("in every layout, uneven ones too, all ranks hold the same bits, on every run") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const test::Layout& layout : test::all_layouts()) {
      CAPTURE(test::to_string(layout));
      const auto once = reduce_all(Communicator::world(test::settings_for(layout)), dtype);
      CHECK(ranks_agree(once));
      const auto again = reduce_all(Communicator::world(test::settings_for(layout)), dtype);
      CHECK(test::agree(all_same(once, again)));
    }
  }
}

TEST_CASE("halving gives the bits of the direct exchange, in every layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    tutti::Settings settings = test::settings_for(layout);
    const auto expected = reduce_all(Communicator::world(settings), DType::float32);
    settings.algorithms = "exchange=halving,handshakes=doubling";
    const auto found = reduce_all(Communicator::world(settings), DType::float32);
    CHECK(test::agree(all_same(found, expected)));
  }
}

TEST_CASE("MPI_Allreduce between nodes gives right sums, and refuses what it cannot sum") {
  const auto expected =
      reduce_all(Communicator::world(test::settings_for(test::one_node())), DType::int32);
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    tutti::Settings settings = test::settings_for(layout);
    settings.algorithms = "exchange=mpi";
    Communicator comm = Communicator::world(settings);
    CHECK(test::agree(all_same(reduce_all(comm, DType::int32), expected)));
    if (comm.num_nodes() == 1) continue;
    Tensor half = Tensor::zeros({3}, DType::bfloat16);
    CHECK(test::throws_on_all([&] { comm.allreduce(half); }, tutti::ErrorCode::invalid_argument,
                              {"MPI cannot reduce bfloat16", "TUTTI_ALGORITHMS"}));
    comm.barrier();
  }
}

TEST_CASE("reproducible: every layout, uneven ones too, gives the bits of one node") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    const auto expected =
        reduce_all(Communicator::world(test::settings_for(test::one_node())), dtype);
    for (const test::Layout& layout : test::all_layouts()) {
      CAPTURE(test::to_string(layout));
      const auto found = reduce_all(Communicator::world(test::settings_for(layout, true)), dtype);
      CHECK(test::agree(all_same(found, expected)));
    }
  }
}

TEST_CASE("reproducible: list pushes give the bits of one node in every layout") {
  const auto expected = push_list(test::settings_for(test::one_node()), true);
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    const auto found = push_list(test::settings_for(layout, true), true);
    CHECK(test::agree(all_same(found, expected)));
  }
}

TEST_CASE("sums and products of integers, and min and max of any type, are alike in all layouts") {
  const std::vector<std::pair<DType, ReduceOp>> cases = {
      {DType::int8, ReduceOp::sum},    {DType::int64, ReduceOp::sum},
      {DType::uint8, ReduceOp::prod},  {DType::int32, ReduceOp::prod},
      {DType::float32, ReduceOp::min}, {DType::float64, ReduceOp::max},
      {DType::float16, ReduceOp::max}, {DType::bfloat16, ReduceOp::min}};
  for (const auto& [type, op] : cases) {
    const DType dtype = type;  // clang before version 16 captures no structured binding
    CAPTURE(std::string(tutti::to_string(dtype)));
    const auto expected =
        reduce_all(Communicator::world(test::settings_for(test::one_node())), dtype, op);
    for (const test::Layout& layout : test::all_layouts()) {
      CAPTURE(test::to_string(layout));
      const auto found = reduce_all(Communicator::world(test::settings_for(layout)), dtype, op);
      CHECK(test::agree(all_same(found, expected)));
    }
  }
}

TEST_CASE("the sizes of chunks and of messages between nodes change no bit") {
  for (const test::Layout& layout : test::equal_blocks()) {
    CAPTURE(test::to_string(layout));
    const auto expected =
        reduce_all(Communicator::world(test::settings_for(layout)), DType::float32);
    tutti::Settings settings = test::settings_for(layout);
    settings.chunk_bytes = 4096;
    settings.piece_bytes = 16384;
    CHECK(
        test::agree(all_same(reduce_all(Communicator::world(settings), DType::float32), expected)));
  }
}

TEST_CASE("init and broadcast reach every node, from any root") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = Communicator::world(test::settings_for(layout));
    for (const std::int64_t count : {1, 1023, 300007}) {
      for (int root = 0; root < test::size(); ++root) {
        Tensor tensor = test::random_tensor({count}, DType::float64, test::rank());
        world.broadcast(tensor, root);
        CHECK(test::agree(
            test::same_bits(tensor, test::random_tensor({count}, DType::float64, root))));
      }
    }
    KVStore kv = KVStore::create(world);
    kv.init(3, test::random_tensor({70001}, DType::float32, test::rank()));
    CHECK(
        test::agree(test::same_bits(kv.view(3), test::random_tensor({70001}, DType::float32, 0))));
  }
}

TEST_CASE("a refused push is refused on all ranks of all nodes, which can go on") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    KVStore kv = KVStore::create("dist", test::settings_for(layout));
    kv.init({3, 5}, {Tensor::ones({2, 3}), Tensor::ones({2, 3})});
    for (int wrong = 0; wrong < test::size(); ++wrong) {
      const bool is_wrong = test::rank() == wrong;
      const tutti::Shape shape = is_wrong ? tutti::Shape{1} : tutti::Shape{2, 3};
      CHECK(test::throws_on_all([&] { kv.push(3, Tensor::ones(shape)); },
                                tutti::ErrorCode::invalid_argument,
                                {"rank " + std::to_string(wrong), "key 3"}));
      CHECK(test::throws_on_all(
          [&] {
            kv.push(is_wrong ? 5 : 3, Tensor::ones({2, 3}));
          },
          tutti::ErrorCode::mismatch, {"rank", "3", "5"}));
      kv.push(3, Tensor::ones({2, 3}));
      CHECK(test::agree(kv.view(3).values<float>()[5] == static_cast<float>(test::size())));
    }
  }
}
