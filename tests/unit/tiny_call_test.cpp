// SPDX-License-Identifier: Apache-2.0
// Calls whose data travels in the first cache line of the announcement, with threads as ranks.
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <string_view>
#include <thread>

#include "collectives/wait/node_memory.hpp"
#include "runtime/job/group.hpp"
#include "tests/support/blocks.hpp"
#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr DType kDTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                             DType::int8,    DType::uint8,    DType::int32,   DType::int64};

/// The value that a rank contributes to element i of a call: sums of such values are exact in every
/// type.
double value_of(int rank, int call, std::size_t i) {
  return 1 + (rank * 3 + call * 5 + static_cast<int>(i)) % 7;
}

/// Sleeps now and then, at different times on every rank and in every call.
void come_late(int rank, int call) {
  if ((rank * 5 + call) % 11 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
}

Tensor input_of(int rank, int call, std::size_t count, DType dtype) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, call, i);
  Tensor tensor = Tensor::empty({static_cast<std::int64_t>(count)}, dtype);
  const Tensor wide = Tensor::from(values);
  tensor.view().copy_from(wide);
  return tensor;
}

bool is_sum(const Tensor& result, int ranks, int call) {
  const std::vector<double> found = result.to_vector<double>();
  for (std::size_t i = 0; i < found.size(); ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, call, i);
    if (found[i] != sum) return false;
  }
  return true;
}

/// The number of wrong sums of 0 to 40 bytes of one type: tiny sums, and the first larger ones.
int wrong_sums(Communicator& comm, DType dtype) {
  int wrong = 0;
  for (std::size_t count = 0; count * size_of(dtype) <= 40; ++count) {
    const int call = static_cast<int>(count) + static_cast<int>(dtype);
    const Tensor input = input_of(comm.rank(), call, count, dtype);
    Tensor output = input_of(comm.rank(), call, count, dtype);
    come_late(comm.rank(), call);
    comm.allreduce(input, output);
    if (!is_sum(output, comm.size(), call)) ++wrong;
    come_late(comm.rank(), call + 1);
    output.view().copy_from(input);
    comm.allreduce(output);  // in place
    if (!is_sum(output, comm.size(), call)) ++wrong;
  }
  return wrong;
}

/// Makes one call of blocks or a sum, which all ranks draw alike; true if it is right.
bool tiny_call_is_right(Communicator& comm, int call, std::minstd_rand& random) {
  const std::size_t count = random() % 6;
  const bool shared = random() % 2 == 0;
  const int root = static_cast<int>(random() % static_cast<unsigned>(comm.size()));
  switch (random() % 7) {
    case 0:
      return test::gather_is_right(comm, count, root, shared);
    case 1:
      return test::scatter_is_right(comm, count, root, shared);
    case 2:
      return test::alltoall_is_right(comm, count, shared);
    case 3:
      return test::allgatherv_is_right(comm, count, shared, call % 2 == 0);
    case 4:
    case 5:
      return test::alltoallv_is_right(comm, count, shared);
    default:
      Tensor data = input_of(comm.rank(), call, 1 + count, DType::float32);
      comm.allreduce(data);
      return is_sum(data, comm.size(), call);
  }
}

/// The line in which this rank announced its last call.
const collectives::AnnounceLine& last_line(Group& group) {
  const collectives::ControlBlock& own = group.engine().memory().control();
  return own.announce[own.calls.newest() & 1];
}

/// The slot of this rank's last payload of more than 64 bytes.
const std::byte* last_slot(Group& group) {
  const auto slot = last_line(group).flags >> collectives::kPayloadSlotShift;
  return group.engine().memory().control().payloads[slot];
}

}  // namespace

TEST_CASE("tiny sums are right, for every element type and number of bytes") {
  for (const auto& layout : {std::vector{1}, {2}, {3}, {5}, {8}, {2, 2}, {3, 1}}) {
    for (const DType dtype : kDTypes) {
      CAPTURE(to_string(dtype));
      std::atomic<int> wrong{0};
      const auto outcomes =
          test::as_ranks(layout, {}, [&](Communicator& comm) { wrong += wrong_sums(comm, dtype); });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("tiny sums have the canonical order") {
  for (const int ranks : {3, 5, 8}) {
    std::vector<float> operands = test::random_values(static_cast<std::size_t>(ranks), 11);
    const float expected = test::tree_sum(operands, 0, operands.size());
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks({ranks}, {}, [&](Communicator& comm) {
      float value = operands[static_cast<std::size_t>(comm.rank())];
      comm.allreduce(TensorView(&value, {}, DType::float32));
      if (std::bit_cast<std::uint32_t>(value) != std::bit_cast<std::uint32_t>(expected)) ++wrong;
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("tiny calls of all kinds follow each other, and larger ones, whoever is late") {
  for (const auto& layout : {std::vector{1}, {2}, {3}, {8}, {2, 2}}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
      for (int call = 0; call < 60; ++call) {
        come_late(comm.rank(), call);
        if (call % 7 == 3) comm.barrier();
        const std::size_t count = call % 5 == 4 ? 700 : 1 + static_cast<std::size_t>(call % 6);
        Tensor data = input_of(comm.rank(), call, count, DType::float32);
        const int root = call % comm.size();
        if (call % 3 == 2) {
          comm.broadcast(data, root);
          if (data.value(0) != value_of(root, call, 0)) ++wrong;
        } else if (call % 3 == 1) {
          comm.reduce(data, data, root);
          if (comm.rank() == root && !is_sum(data, comm.size(), call)) ++wrong;
        } else {
          comm.allreduce(data);
          if (!is_sum(data, comm.size(), call)) ++wrong;
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("up to 32 bytes travel in the first cache line, and 33 do not") {
  const auto groups = make_thread_groups({2}, {});
  for (const std::int64_t count : {32, 33}) {
    const auto outcomes = test::run_ranks(groups, [&](Communicator& comm) {
      Tensor data =
          Tensor::full({count}, 40 + static_cast<double>(count) + comm.rank(), DType::uint8);
      comm.allreduce(data);
    });
    CHECK(test::all_returned(outcomes));
    for (int rank = 0; rank < 2; ++rank) {
      const auto& line = last_line(*groups[static_cast<std::size_t>(rank)]);
      const auto own = static_cast<std::byte>(40 + count + rank);
      CHECK((line.directory.tiny_payload[collectives::kTinyBytes - 1] == own) == (count == 32));
      CHECK((line.payload[0] == own) == (count == 33));
    }
  }
}

TEST_CASE("tiny calls that differ throw on all ranks, and the next one is right") {
  const auto outcomes = test::as_ranks({3}, {}, [](Communicator& comm) {
    int thrown = 0;
    for (int call = 0; call < 6; ++call) {
      try {
        const bool other = comm.rank() == call % 3;
        if (other && call > 3) {
          comm.barrier();
        } else {
          Tensor data = Tensor::full({other ? 3 : 2}, 1, DType::float32);
          comm.allreduce(data, call % 2 == 0 ? ReduceOp::sum : ReduceOp::max);
        }
      } catch (const Error& error) {
        if (error.code() == ErrorCode::mismatch && error.recoverable()) ++thrown;
      }
      Tensor data = input_of(comm.rank(), call, 2, DType::float32);
      comm.allreduce(data);
      if (!is_sum(data, comm.size(), call)) throw Error(ErrorCode::divergence, "a wrong sum");
    }
    if (thrown != 6) throw Error(ErrorCode::divergence, "not every call was refused");
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("tiny blocks reach their ranks, among sums and larger blocks, whoever is late") {
  for (const auto& layout : {std::vector{1}, {2}, {3}, {4}, {8}, {2, 2}}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, {}, [&](Communicator& comm) {
      std::minstd_rand random(7);  // all ranks draw the same
      for (int call = 0; call < 150; ++call) {
        come_late(comm.rank(), call);
        if (!tiny_call_is_right(comm, call, random)) ++wrong;
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("blocks of one rank lie end to end in its first cache line, up to 32 bytes of them") {
  const auto groups = make_thread_groups({2}, {});
  for (const std::int64_t count : {16, 17}) {
    const auto outcomes = test::run_ranks(groups, [&](Communicator& comm) {
      const Tensor input =
          Tensor::full({2 * count}, 40 + static_cast<double>(count) + comm.rank(), DType::uint8);
      Tensor output = Tensor::zeros({2 * count}, DType::uint8);
      comm.alltoall(input, output);
    });
    CHECK(test::all_returned(outcomes));
    for (int rank = 0; rank < 2; ++rank) {
      const auto& line = last_line(*groups[static_cast<std::size_t>(rank)]);
      const auto own = static_cast<std::byte>(40 + count + rank);
      CHECK((line.directory.tiny_payload[collectives::kTinyBytes - 1] == own) == (count == 16));
      const std::byte* const slot = last_slot(*groups[static_cast<std::size_t>(rank)]);
      CHECK((slot[static_cast<std::size_t>(rank) * 128] == own) == (count == 17));
    }
  }
}

TEST_CASE("a payload of more than 64 bytes lies in the next of three slots") {
  const auto groups = make_thread_groups({2}, {});
  const auto outcomes = test::run_ranks(groups, [&](Communicator& comm) {
    auto& group = *groups[static_cast<std::size_t>(comm.rank())];
    const std::byte* slots[8] = {};
    for (int call = 0; call < 8; ++call) {
      const std::int64_t count = call % 4 == 3 ? 8192 : 65;
      Tensor data = Tensor::full({count}, 20 + call + 100 * comm.rank(), DType::uint8);
      comm.allreduce(data, ReduceOp::max);
      slots[call] = last_slot(group);
      const auto own = static_cast<std::byte>(20 + call + 100 * comm.rank());
      if (slots[call][64] != own) throw Error(ErrorCode::divergence, "not in its slot");
      comm.barrier();  // has no payload, and takes no slot
      Tensor small = Tensor::full({64}, 1, DType::uint8);
      comm.allreduce(small);
      if (last_line(group).payload[63] != std::byte{1}) {
        throw Error(ErrorCode::divergence, "64 bytes are not in the line");
      }
    }
    for (int call = 0; call + 3 < 8; ++call) {
      const bool in_turn = slots[call] != slots[call + 1] && slots[call] != slots[call + 2] &&
                           slots[call] == slots[call + 3];
      if (!in_turn) throw Error(ErrorCode::divergence, "slots are not taken in turn");
    }
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("an alltoallv of few elements is one operation once the ranks know how few") {
  struct Step {
    std::size_t count;  // of int64 that each rank has for each
    std::uint64_t operations;
  };
  struct Case {
    int ranks;
    std::vector<Step> steps;
  };
  // At first as many bytes of blocks travel with the counts as these have themselves, then as many
  // as in the call before, each to the next power of two; all ranks together have 4 KiB. A rank's
  // own block does not travel.
  const Case cases[] = {
      {2,
       {{4, 1}, {5, 2}, {5, 1}, {12, 1}, {13, 2}, {252, 2}, {252, 1}, {253, 2}, {253, 2}, {4, 1}}},
      {5, {{5, 1}, {6, 2}, {6, 1}, {0, 1}, {6, 2}}},
      {11, {{2, 1}, {3, 2}, {3, 2}, {2, 1}}},
      {12, {{1, 2}, {1, 2}}}};
  for (const Case& asked : cases) {
    const auto groups = make_thread_groups({asked.ranks}, {});
    const auto ranks = static_cast<std::size_t>(asked.ranks);
    for (const Step& step : asked.steps) {
      CAPTURE(asked.ranks);
      CAPTURE(step.count);
      std::atomic<std::uint64_t> operations{0};
      std::atomic<int> wrong{0};
      const auto outcomes = test::run_ranks(groups, [&](Communicator& comm) {
        const std::uint64_t before = groups.front()->engine().memory().control().calls.newest();
        comm.barrier();
        const test::Counts counts(ranks, step.count);
        Tensor input = test::numbers(comm, false, ranks * step.count);
        Tensor output = test::numbers(comm, false, ranks * step.count);
        test::fill_blocks(input, counts, comm.rank(), [](int to) { return to; });
        comm.alltoallv(input, counts, output, counts);
        if (!test::are_blocks(output, counts, comm.rank())) ++wrong;
        if (comm.rank() == 0) {
          operations = groups.front()->engine().memory().control().calls.newest() - before - 1;
        }
      });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
      CHECK(operations == step.operations);
    }
  }
}

TEST_CASE("an alltoallv of few elements whose counts differ changes nothing on any rank") {
  for (const int ranks : {2, 3, 4, 5}) {
    std::atomic<int> right{0};
    const auto outcomes = test::as_ranks({ranks}, {}, [&](Communicator& comm) {
      const auto size = static_cast<std::size_t>(comm.size());
      const test::Counts given(size, 1);
      test::Counts wanted(size, 1);
      if (comm.rank() == 1) wanted.front() = 2;  // rank 0 gives it one
      Tensor input = test::numbers(comm, false, size);
      Tensor output = test::numbers(comm, false, test::total(wanted));
      test::fill_blocks(input, given, comm.rank(), [](int to) { return to; });
      try {
        comm.alltoallv(input, given, output, wanted);
      } catch (const Error& error) {
        const bool is_named = std::string_view(error.what())
                                  .find("rank 0 gives 1 elements to rank 1, which expects 2") !=
                              std::string_view::npos;
        if (is_named && error.recoverable() && test::is_untouched(output)) ++right;
      }
      if (!test::alltoallv_is_right(comm, 1, false)) --right;
    });
    CHECK(test::all_returned(outcomes));
    CHECK(right == ranks);
  }
}
