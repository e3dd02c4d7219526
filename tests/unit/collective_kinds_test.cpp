// SPDX-License-Identifier: Apache-2.0
// Collectives of blocks and reductions to some ranks, with threads as ranks, in every layout.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "support/array_memory.hpp"
#include "support/blocks.hpp"
#include "support/messages.hpp"
#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr int kRanks = 4;
constexpr std::size_t kCounts[] = {0, 1, 3, 100, 257, 5003};

Settings reproducible_pieces() {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.reproducible = true;  // makes one expectation hold for all layouts
  return settings;
}

Shape flat(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

/// The values that all ranks contribute to a call of `count` elements, with their canonical sum.
const test::Summands& summands_of(std::size_t count) {
  static const auto all = [] {
    std::map<std::size_t, test::Summands> by_count;
    for (const std::size_t each : kCounts) {
      const std::size_t both[] = {each, kRanks * each};
      for (test::Summands& summands : test::summands_of(kRanks, both)) {
        by_count.emplace(summands.sum.size(), std::move(summands));
      }
    }
    return by_count;
  }();
  return all.at(count);
}

const std::vector<float>& values_of(int rank, std::size_t count) {
  return summands_of(count).inputs[static_cast<std::size_t>(rank)];
}

Tensor tensor_of(Communicator& comm, bool shared, const std::vector<float>& values) {
  Tensor tensor = shared ? comm.allocate(flat(values.size())) : Tensor::empty(flat(values.size()));
  std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  return tensor;
}

/// Runs `body(comm, count, shared)` in all layouts of kRanks, for all sizes and kinds of memory.
void in_all_ways(const std::function<bool(Communicator&, std::size_t, bool)>& body) {
  for (const auto& nodes : test::layouts_of(kRanks)) {
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
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = comm.rank() == root ? summands_of(count).sum[i] : -5.0f;
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
    for (std::size_t i = 0; i < count; ++i) {
      if (output.values<float>()[i] != summands_of(ranks * count).sum[first + i]) {
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
      const auto& expected = values_of(rank, count);
      const auto block =
          output.values<float>().subspan(static_cast<std::size_t>(rank) * count, count);
      if (!std::equal(expected.begin(), expected.end(), block.begin())) return false;
    }
    return true;
  });
}

TEST_CASE("reduce_scatter with counts gives every rank its block, however long") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    const std::size_t whole = static_cast<std::size_t>(comm.size()) * count;
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 0);
    counts[1] = whole / 3;
    counts.back() = whole - whole / 3;
    const Tensor input = tensor_of(comm, shared, values_of(comm.rank(), whole));
    const std::size_t own = counts[static_cast<std::size_t>(comm.rank())];
    Tensor output = tensor_of(comm, shared, std::vector<float>(own, -5.0f));
    comm.reduce_scatter(input, output, counts);
    const std::size_t first = comm.rank() == comm.size() - 1 ? whole / 3 : 0;
    for (std::size_t i = 0; i < own; ++i) {
      if (output.values<float>()[i] != summands_of(whole).sum[first + i]) return false;
    }
    return true;
  });
}

TEST_CASE("gather, scatter, allgatherv, alltoall and alltoallv bring each block to its rank") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    return test::blocks_are_right(comm, count, shared);
  });
}

namespace {

/// Small numbers, whose sums need no more than 16 bits.
Tensor small_numbers(std::size_t count, int rank) {
  Tensor tensor = Tensor::empty(flat(count), DType::bfloat16);
  for (std::size_t i = 0; i < count; ++i) {
    tensor.values<BFloat16>()[i] = BFloat16(static_cast<float>((i / 3 + 5 * rank) % 16));
  }
  return tensor;
}

bool sums_of_small_numbers_are_right(Communicator& comm, std::size_t count) {
  test::Counts counts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    counts.push_back(test::uneven_count(rank, 2, count));
  }
  const std::size_t whole = test::total(counts);
  std::vector<float> sums(whole, 0.0f);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const Tensor input = small_numbers(whole, rank);
    for (std::size_t i = 0; i < whole; ++i) {
      sums[i] += static_cast<float>(input.values<BFloat16>()[i]);
    }
  }
  const auto own = static_cast<std::size_t>(comm.rank());
  Tensor output = Tensor::zeros(flat(counts[own]), DType::bfloat16);
  comm.reduce_scatter(small_numbers(whole, comm.rank()), output, counts);
  std::size_t first = 0;
  for (std::size_t rank = 0; rank < own; ++rank) first += counts[rank];
  for (std::size_t i = 0; i < counts[own]; ++i) {
    if (static_cast<float>(output.values<BFloat16>()[i]) != sums[first + i]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("blocks of many more chunks than are under way reach their ranks") {
  for (const auto& nodes :
       std::vector<std::vector<int>>{{1, 1}, {1, 1, 1}, {2, 2}, {3, 2}, {1, 3, 2}}) {
    for (const bool reproducible : {false, true}) {
      if (test::kFewCases && reproducible != (nodes.size() == 2)) continue;
      Settings settings = reproducible_pieces();
      settings.algorithms = "in-flight=2";
      settings.reproducible = reproducible;
      std::atomic<int> wrong{0};
      const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
        for (const std::size_t count : {5003, 20001}) {
          for (const bool shared : {true, false, comm.rank() % 2 == 0}) {
            if (!test::blocks_are_right(comm, count, shared)) ++wrong;
          }
          if (!sums_of_small_numbers_are_right(comm, count)) ++wrong;
        }
      });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("messages reach the other rank of every pair") {
  in_all_ways([](Communicator& comm, std::size_t count, bool shared) {
    return test::pairs_are_right(comm, count, shared) &&
           test::pairs_are_right(comm, 7 * count, shared);
  });
}

TEST_CASE("10,000 messages and calls of all ranks in random order, whoever is late, are right") {
  struct Drawn {  // equal on all ranks
    std::minstd_rand random;
    int below(int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); }
  };
  constexpr std::size_t kSizes[] = {0, 1, 4, 5, 100, 512, 513, 3000};  // counts of 8-byte elements
  for (const auto& [layout, calls] :
       {std::pair(std::vector{3}, 10000), {{2}, 2000}, {{2, 2}, 500}}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, {}, [&, calls = calls](Communicator& comm) {
      Drawn drawn{std::minstd_rand(29)};
      std::minstd_rand own(static_cast<unsigned>(comm.rank()) + 1);
      Tensor shared = comm.allocate(flat(3000), DType::int64);
      Tensor ordinary = Tensor::empty(flat(3000), DType::int64);
      for (int call = 0; call < (test::kFewRounds ? calls / 5 : calls); ++call) {
        if (own() % 97 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
        const Tensor& memory = own() % 2 == 0 ? shared : ordinary;
        const std::size_t count = kSizes[drawn.below(8)];
        const TensorView tensor(const_cast<std::byte*>(memory.bytes()), flat(count), DType::int64);
        const int from = drawn.below(comm.size());
        const int to = (from + 1 + drawn.below(comm.size() - 1)) % comm.size();
        const int kind = drawn.below(8);
        tensor.fill(call * 10 + comm.rank());
        int expected = call * 10 + comm.rank();
        if (kind == 0) {
          comm.broadcast(tensor, from);
          expected = call * 10 + from;
        } else if (kind == 1) {
          comm.allreduce(tensor, ReduceOp::max);
          expected = call * 10 + comm.size() - 1;
        } else if (comm.rank() == from) {
          comm.send(tensor, to);
          if (kind > 4) comm.receive(tensor, to);
          if (kind > 4) expected = call * 10 + from;  // the partner sends the same back
        } else if (comm.rank() == to) {
          comm.receive(tensor, from);
          if (kind > 4) comm.send(tensor, from);
          expected = call * 10 + from;
        }
        const auto values = tensor.values<std::int64_t>();
        if (!std::all_of(values.begin(), values.end(), [&](auto v) { return v == expected; })) {
          ++wrong;
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a message that is lost between nodes ends at the deadline, naming both ranks") {
  Settings settings = reproducible_pieces();
  settings.timeout = test::kShortDeadline;
  settings.log = LogLevel::quiet;
  constexpr int kMessage = 5;
  const auto lose = [](int, int, int tag) { return tag != kMessage; };
  const auto outcomes = test::as_ranks(
      {1, 1}, settings,
      [](Communicator& comm) {
        Tensor tensor = Tensor::ones({3});
        comm.rank() == 0 ? comm.send(tensor, 1) : comm.receive(tensor, 0);
      },
      lose);
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "rank 0"));
  CHECK(test::all_say(outcomes, ErrorCode::timeout, "rank 1"));
}

TEST_CASE("blocks take every path through a node") {
  Settings settings = reproducible_pieces();
  settings.algorithms = "paths=in-turn";
  for (const int ranks : {2, 3, 5}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks({ranks}, settings, [&](Communicator& comm) {
      for (int turn = 0; turn < 12; ++turn) {
        for (const bool shared : {true, false}) {
          if (!test::blocks_are_right(comm, 700, shared)) ++wrong;
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
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

namespace {

/// Runs `call` on ranks of two nodes. True if all throw out_of_memory, with these words, and can go
/// on.
bool is_without_memory(int ranks, const std::string& words,
                       const std::function<void(Communicator&)>& call) {
  std::atomic<int> right{0};
  const auto outcomes = test::as_ranks({ranks / 2, ranks - ranks / 2}, reproducible_pieces(),
                                       [&](Communicator& comm) {
                                         try {
                                           call(comm);
                                         } catch (const Error&) {
                                           test::set_most_of_array(test::kAnyArray);
                                           if (test::alltoall_is_right(comm, 3, true)) ++right;
                                           throw;
                                         }
                                       });
  return right == ranks && test::all_say(outcomes, ErrorCode::out_of_memory, words);
}

}  // namespace

TEST_CASE("a rank without memory for a list of blocks throws on all ranks") {
  constexpr std::size_t kFew = 1000;
  CHECK(is_without_memory(5, "alltoall of (10) float32: no memory", [](Communicator& comm) {
    const Tensor input = Tensor::ones({10});
    Tensor output = Tensor::zeros({10});
    if (comm.rank() == 1) test::set_most_of_array(kFew);
    comm.alltoall(input, output);
  }));
  CHECK(is_without_memory(17, "(sum, elementwise) of (3000) float32: no memory",
                          [](Communicator& comm) {
                            UserOp sum;
                            sum.name = "sum";
                            sum.elementwise = true;
                            sum.combine = [&](const TensorView& left, const ConstTensorView&) {
                              // A lack of memory behind the first move, for the list of the second.
                              if (comm.rank() == 3) test::set_most_of_array(kFew);
                              CHECK(left.count() > 0);
                            };
                            const Tensor input = Tensor::ones({3000});
                            Tensor output = Tensor::full({3000}, -1.0f);
                            try {
                              comm.allreduce(input, output, sum);
                            } catch (const Error&) {
                              for (const float value : output.values<float>()) {
                                if (value != -1.0f) FAIL("an output was written");
                              }
                              throw;
                            }
                          }));
}
