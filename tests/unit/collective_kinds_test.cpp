// SPDX-License-Identifier: Apache-2.0
// reduce, reduce_scatter and allgather, with threads as ranks, in every layout.
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>

#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 3, 100, 257, 5003};

Settings reproducible_pieces() {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.reproducible = true;  // so that one expectation holds for all layouts
  return settings;
}

Shape flat(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

std::vector<float> values_of(int rank, std::size_t count) {
  return test::random_values(count, 100u * static_cast<unsigned>(rank) + 1);
}

float expected_sum(int ranks, std::size_t count, std::size_t index) {
  std::vector<float> operands;
  for (int rank = 0; rank < ranks; ++rank) operands.push_back(values_of(rank, count)[index]);
  return test::tree_sum(operands, 0, operands.size());
}

Tensor tensor_of(Communicator& comm, bool shared, const std::vector<float>& values) {
  Tensor tensor = shared ? comm.allocate(flat(values.size())) : Tensor::empty(flat(values.size()));
  std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  return tensor;
}

/// Runs `body(comm, count, shared)` in all layouts of 4 ranks, for all sizes and kinds of memory.
void in_all_ways(const std::function<bool(Communicator&, std::size_t, bool)>& body) {
  for (const auto& nodes : test::layouts_of(4)) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(nodes, reproducible_pieces(), [&](Communicator& comm) {
      for (const std::size_t count : kCounts) {
        for (const bool shared : {true, false, comm.rank() % 2 == 0}) {
          if (!body(comm, count, shared)) ++wrong;
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("reduce gives the root the canonical sum and leaves other outputs alone") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    bool right = true;
    for (int root = 0; root < comm.size(); ++root) {
      const Tensor input = tensor_of(comm, shared, values_of(comm.rank(), count));
      Tensor output = tensor_of(comm, shared, std::vector<float>(count, -5.0f));
      comm.reduce(input, output, root);
      for (std::size_t i = 0; i < count; i += 97) {
        const float expected = comm.rank() == root ? expected_sum(comm.size(), count, i) : -5.0f;
        right = right && output.values<float>()[i] == expected;
      }
    }
    return right;
  });
}

TEST_CASE("reduce_scatter gives every rank its block of the canonical sum") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const Tensor input = tensor_of(comm, shared, values_of(comm.rank(), ranks * count));
    Tensor output = tensor_of(comm, shared, std::vector<float>(count, -5.0f));
    comm.reduce_scatter(input, output);
    const std::size_t first = static_cast<std::size_t>(comm.rank()) * count;
    for (std::size_t i = 0; i < count; i += 97) {
      if (output.values<float>()[i] != expected_sum(comm.size(), ranks * count, first + i)) {
        return false;
      }
    }
    return true;
  });
}

TEST_CASE("allgather gives every rank all inputs in the order of ranks") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const Tensor input = tensor_of(comm, shared, values_of(comm.rank(), count));
    Tensor output = tensor_of(comm, shared, std::vector<float>(ranks * count, -5.0f));
    comm.allgather(input, output);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto expected = values_of(rank, count);
      const auto block =
          output.values<float>().subspan(static_cast<std::size_t>(rank) * count, count);
      if (!std::equal(expected.begin(), expected.end(), block.begin())) return false;
    }
    return true;
  });
}

TEST_CASE("blocks that do not fit are refused on all ranks") {
  std::atomic<int> refused{0};
  test::as_ranks({2, 1}, reproducible_pieces(), [&](Communicator& comm) {
    Tensor input = Tensor::ones({6});
    Tensor output = Tensor::ones({comm.rank() == 1 ? 4 : 2});
    try {
      comm.reduce_scatter(input, output);
    } catch (const Error& error) {
      if (std::string(error.what()).find("rank 1 ") != std::string::npos) ++refused;
    }
    try {
      comm.reduce(input, input, comm.rank() == 2 ? 3 : 0);
    } catch (const Error& error) {
      if (std::string(error.what()).find("root 3 is not a rank; expected 0 to 2") !=
          std::string::npos) {
        ++refused;
      }
    }
  });
  CHECK(refused == 6);
}
