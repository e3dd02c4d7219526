// SPDX-License-Identifier: Apache-2.0
// Every way that data can take through a node gives the canonical bits: forced one by one, and
// another one in every call.
#include <algorithm>
#include <atomic>
#include <doctest/doctest.h>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "collectives/node/call.hpp"
#include "tests/support/emulated.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using test::same_bits;
using test::values_of;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 300, 2047, 2048, test::kFewCases ? 5003 : 20001};

enum class Memory { shared, ordinary, mixed };

constexpr Memory kMemories[] = {Memory::shared, Memory::ordinary, Memory::mixed};

Settings taking(const std::string& algorithms) {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.algorithms = algorithms;
  return settings;
}

bool is_shared(Memory memory, int rank) {
  return memory == Memory::shared || (memory == Memory::mixed && rank % 2 == 0);
}

Tensor empty_in(Communicator& comm, Memory memory, std::size_t count) {
  const Shape shape{static_cast<std::int64_t>(count)};
  return is_shared(memory, comm.rank()) ? comm.allocate(shape) : Tensor::empty(shape);
}

Tensor tensor_in(Communicator& comm, Memory memory, const std::vector<float>& values) {
  Tensor tensor = empty_in(comm, memory, values.size());
  std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  return tensor;
}

/// Sleeps now and then, so that a rank has to wait for data that another one finds at once.
void dawdle(int rank, std::size_t count) {
  if ((static_cast<std::size_t>(rank) * 7 + count) % 5 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

/// The number of wrong results of every collective, with inputs and outputs in all kinds of memory,
/// in place and not.
int wrong_results(Communicator& comm, const test::Summands& summands, Memory inputs,
                  Memory outputs) {
  int wrong = 0;
  const std::vector<float>& own = summands.inputs[static_cast<std::size_t>(comm.rank())];
  const std::vector<float>& sum = summands.sum;
  const std::size_t count = sum.size();
  Tensor input = tensor_in(comm, inputs, own);
  Tensor output = empty_in(comm, outputs, count);
  dawdle(comm.rank(), count);
  comm.allreduce(input, output);
  if (!same_bits(output.values<float>(), sum)) ++wrong;
  if (!same_bits(input.values<float>(), own)) ++wrong;
  comm.reduce(input, output, comm.size() - 1);
  if (comm.rank() == comm.size() - 1 && !same_bits(output.values<float>(), sum)) ++wrong;
  Tensor all = empty_in(comm, outputs, count * static_cast<std::size_t>(comm.size()));
  comm.allgather(input, all);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto block = all.values<float>().subspan(static_cast<std::size_t>(rank) * count, count);
    if (!same_bits(block, summands.inputs[static_cast<std::size_t>(rank)])) ++wrong;
  }
  Tensor share = empty_in(comm, inputs, count);
  // Every rank has the same input, so the sum is size times its block.
  comm.reduce_scatter(all, share);
  comm.broadcast(input, comm.size() - 1);
  if (!same_bits(input.values<float>(), summands.inputs.back())) ++wrong;
  comm.allreduce(share, ReduceOp::max);
  Tensor again = tensor_in(comm, inputs, own);
  comm.allreduce(again);  // in place
  if (!same_bits(again.values<float>(), sum)) ++wrong;
  return wrong;
}

void check_all(int ranks, const std::string& algorithms, int rounds) {
  CAPTURE(ranks);
  CAPTURE(algorithms);
  const auto all = test::summands_of(ranks, kCounts);
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({ranks}, taking(algorithms), [&](Communicator& comm) {
    for (int round = 0; round < rounds; ++round) {
      for (const test::Summands& summands : all) {
        for (const Memory inputs : kMemories) {
          for (const Memory outputs : kMemories) {
            if (test::kFewCases && inputs != outputs && outputs != Memory::mixed) continue;
            wrong += wrong_results(comm, summands, inputs, outputs);
          }
        }
      }
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

}  // namespace

// These paths read another rank's memory through the kernel: process_vm_readv, which qemu-user does
// not have.
TEST_CASE("every path that can be asked for gives the canonical sums" *
          doctest::skip(test::is_emulated())) {
  for (const char* inputs : {"announced", "staged", "fetched"}) {
    for (const char* results : {"spread", "own", "fetched"}) {
      for (const char* writes : {"1G", "0"}) {
        if (test::kFewCases && *writes == '0') continue;
        const std::string bytes = writes;
        check_all(3,
                  std::string("inputs=") + inputs + ",results=" + results +
                      ",streamed-slots=" + bytes + ",streamed-outputs=" + bytes,
                  1);
      }
    }
  }
}

TEST_CASE("so does a run in which every call takes another path, with any number of ranks" *
          doctest::skip(test::is_emulated())) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    if (test::kFewCases && ranks > 3) continue;
    check_all(ranks, "paths=in-turn", test::kFewRounds || ranks > 4 ? 2 : 12);
  }
}

TEST_CASE("and one that learns" * doctest::skip(test::is_emulated())) {
  for (const int ranks : {2, 3})
    check_all(ranks, "", test::kFewCases ? 3 : test::kFewRounds ? 10 : 20);
}

namespace {

using Bits = std::vector<std::vector<float>>;

/// Pushes lists of keys, also of a key's own replica, with outputs and without; returns the bits
/// that each rank has pulled afterwards. `name`: of an optimizer; empty for none.
Bits pushed(Communicator& comm, const std::string& name, Memory memory) {
  KVStore kv = KVStore::create(comm);
  const std::vector<Key> keys = {1, 2, 3};
  const std::size_t counts[] = {3, 5000, 700};
  std::vector<Tensor> gradients;
  std::vector<Tensor> outputs;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    gradients.push_back(tensor_in(comm, memory, values_of(comm.rank(), counts[k])));
    outputs.push_back(empty_in(comm, memory, counts[k]));
    kv.init(keys[k], Tensor::full(gradients.back().shape(), 0.5));
  }
  if (!name.empty()) kv.set_optimizer(optimizer::create(name));
  Bits bits;
  const auto keep = [&] {
    for (const Tensor& output : outputs) {
      const auto values = output.values<float>();
      bits.emplace_back(values.begin(), values.end());
    }
  };
  for (int round = 0; round < (test::kFewRounds ? 5 : 30); ++round) {
    kv.push(keys, gradients);
    kv.pull(keys, outputs);
    keep();
    kv.pushpull(keys, gradients, outputs);
    keep();
    kv.push(2, kv.view(2));
    kv.pull(2, outputs[1]);
    keep();
  }
  return bits;
}

std::vector<Bits> pushed_on_all(int ranks, const Settings& settings, const std::string& name,
                                Memory memory) {
  std::vector<Bits> bits(static_cast<std::size_t>(ranks));
  const auto outcomes = test::as_ranks({ranks}, settings, [&](Communicator& comm) {
    bits[static_cast<std::size_t>(comm.rank())] = pushed(comm, name, memory);
  });
  CHECK(test::all_returned(outcomes));
  return bits;
}

}  // namespace

TEST_CASE("pushes have the same bits, whatever paths they take" *
          doctest::skip(test::is_emulated())) {
  for (const int ranks : {2, 3, 4}) {
    if (test::kFewCases && ranks != 3) continue;
    for (const char* optimizer : {"", "sgd,momentum=0.9,learning_rate=0.01"}) {
      for (const Memory memory : kMemories) {
        CAPTURE(ranks);
        CAPTURE(optimizer);
        const auto settings = taking("inputs=staged,results=spread");
        const auto expected = pushed_on_all(ranks, settings, optimizer, memory);
        for (const Bits& bits : expected) CHECK(bits == expected.front());
        CHECK(pushed_on_all(ranks, taking("paths=in-turn"), optimizer, memory) == expected);
        CHECK(pushed_on_all(ranks, taking(""), optimizer, memory) == expected);
      }
    }
  }
}

TEST_CASE("ranks of which one has planned another call of a class take one path in the next one") {
  for (const int ranks : {2, 4}) {
    for (const std::int64_t first : {512, 672, 1024, 2048, 4096}) {  // both sides of limits
      CAPTURE(ranks);
      CAPTURE(first);
      const std::int64_t next = first + first / 3;
      std::atomic<int> right{0};
      const auto outcomes = test::as_ranks({ranks}, taking(""), [&](Communicator& comm) {
        Tensor output = Tensor::zeros({first});
        try {  // a call that the learner does not hear of
          comm.rank() == 0 ? comm.allreduce(Tensor::ones({first}), output) : comm.barrier();
        } catch (const Error& error) {
          if (error.code() != ErrorCode::mismatch) throw;
        }
        Tensor sums = Tensor::zeros({next});
        comm.allreduce(Tensor::ones({next}), sums);
        const auto is_sum = [&](float value) { return value == static_cast<float>(ranks); };
        if (std::ranges::all_of(sums.values<float>(), is_sum)) ++right;
      });
      CHECK(test::all_returned(outcomes));
      CHECK(right == ranks);
    }
  }
}
