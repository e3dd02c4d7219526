// SPDX-License-Identifier: Apache-2.0
// The algorithms between nodes that are chosen for many nodes or large data, with threads as ranks.
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>

#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kLengths[] = {0, 1, 17, 2500, 20001};

Settings with(const char* algorithms) {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.algorithms = algorithms;
  return settings;
}

std::vector<float> floats_of(int rank, std::size_t count) {
  return test::random_values(count, 31u * static_cast<unsigned>(rank) + 5);
}

std::vector<float> canonical_sum(int ranks, std::size_t count) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(floats_of(rank, count));
  std::vector<float> sum(count);
  std::vector<float> operands(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) operands[rank] = inputs[rank][i];
    sum[i] = test::tree_sum(operands, 0, operands.size());
  }
  return sum;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0);
}

/// Allreduces of all sizes in nodes of equal size; true if every rank had the canonical sum.
bool sums_are_canonical(int nodes, int per_node, const char* algorithms,
                        tutti::MessageFilter filter = {}) {
  std::atomic<int> wrong{0};
  const std::vector<int> layout(static_cast<std::size_t>(nodes), per_node);
  const auto outcomes = test::as_ranks(
      layout, with(algorithms),
      [&](Communicator& comm) {
        for (const std::size_t count : kLengths) {
          std::vector<float> data = floats_of(comm.rank(), count);
          comm.allreduce(view(data.data(), {static_cast<std::int64_t>(count)}));
          if (!same_bits(data, canonical_sum(comm.size(), count))) ++wrong;
        }
      },
      std::move(filter));
  return test::all_returned(outcomes) && wrong == 0;
}

}  // namespace

TEST_CASE("halving gives the canonical sum for any number of nodes") {
  for (const int nodes : {2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 19}) {
    CAPTURE(nodes);
    CHECK(sums_are_canonical(nodes, 1, "exchange=halving"));
  }
}

TEST_CASE("halving gives the canonical sum with several lanes") {
  for (const int nodes : {2, 3, 5, 7}) {
    CAPTURE(nodes);
    CHECK(sums_are_canonical(nodes, 2, "exchange=halving"));
  }
}

TEST_CASE("halving of late messages changes nothing") {
  std::atomic<int> messages{0};
  const auto late = [&](int from, int to, int tag) {
    if ((++messages * 7 + from + 3 * to + tag) % 5 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  };
  CHECK(sums_are_canonical(7, 1, "exchange=halving", late));
  CHECK(messages > 100);
}

TEST_CASE("handshakes by doubling bring every node's signature and small data") {
  for (const int nodes : {2, 3, 4, 5, 8, 9, 13}) {
    CAPTURE(nodes);
    CHECK(sums_are_canonical(nodes, 1, "handshakes=doubling"));
  }
  CHECK(sums_are_canonical(3, 2, "handshakes=doubling,exchange=halving"));
}

TEST_CASE("handshakes by doubling tell every node of a difference") {
  for (const int nodes : {3, 6}) {
    const std::vector<int> layout(static_cast<std::size_t>(nodes), 1);
    const auto outcomes =
        test::as_ranks(layout, with("handshakes=doubling"), [](Communicator& comm) {
          const std::size_t count = comm.rank() == 1 ? 900 : 3;
          std::vector<float> data(count, 1.0f);
          CHECK_THROWS_AS(comm.allreduce(view(data.data(), {static_cast<std::int64_t>(count)})),
                          Error);
          CHECK(data.front() == 1.0f);
          comm.barrier();
          comm.allreduce(view(data.data(), {3}));
          CHECK(data.front() == static_cast<float>(comm.size()));
        });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("reduce and reduce_scatter are right beside any exchange") {
  for (const char* algorithms : {"exchange=direct", "exchange=halving"}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks({2, 2, 2, 2}, with(algorithms), [&](Communicator& comm) {
      constexpr std::size_t kCount = 6004;
      const std::vector<float> input = floats_of(comm.rank(), 8 * kCount);
      const auto expected = canonical_sum(comm.size(), 8 * kCount);
      std::vector<float> sum(8 * kCount, -1.0f);
      const Shape all{8 * kCount};
      for (const int root : {0, 5}) {
        comm.reduce(view(input.data(), all), view(sum.data(), all), root);
        const auto is_untouched = [](float value) { return value == -1.0f; };
        const bool right = comm.rank() == root ? same_bits(sum, expected)
                                               : std::all_of(sum.begin(), sum.end(), is_untouched);
        if (!right) ++wrong;
        std::fill(sum.begin(), sum.end(), -1.0f);
      }
      std::vector<float> block(kCount);
      comm.reduce_scatter(view(input.data(), all), view(block.data(), {kCount}));
      const auto first = static_cast<std::ptrdiff_t>(kCount) * comm.rank();
      if (!std::equal(block.begin(), block.end(), expected.begin() + first)) ++wrong;
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a large broadcast goes from node to node, from every root") {
  constexpr std::size_t kCount = 150001;  // above the size from which it is a chain
  for (const auto& layout : std::vector<std::vector<int>>{{1, 1}, {1, 1, 1, 1}, {2, 1, 3}}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, with(""), [&](Communicator& comm) {
      for (int root = 0; root < comm.size(); ++root) {
        const auto expected = floats_of(root, kCount);
        std::vector<float> data(kCount, -1.0f);
        if (comm.rank() == root) data = expected;
        comm.broadcast(view(data.data(), {kCount}), root);
        if (!same_bits(data, expected)) ++wrong;
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}
