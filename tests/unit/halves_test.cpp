// SPDX-License-Identifier: Apache-2.0
// Sums whose halves go with the handshakes: their choice, bits and number of messages, and their
// ends when nodes differ or are lost. Threads as ranks.
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "collectives/choice/learner.hpp"
#include "collectives/choice/tuning.hpp"
#include "collectives/lanes/exchange.hpp"
#include "collectives/lanes/halving.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using collectives::Topology;
using collectives::Tuning;

namespace {

constexpr std::size_t kKiB = 1024;

// Settings with which all but the smallest sums go by halves.
constexpr const char* kHalves = "handshakes=doubling,inline-shared=64,halved=4M";
// Lengths of sums: 17 elements are fewer than 16 nodes have lines; 100,001 are several messages in
// every round.
constexpr std::size_t kLengths[] = {0, 1, 17, 2500, 20'001, 100'001};

Settings static_with(const std::string& algorithms) {
  Settings settings;
  settings.tuning = "static";
  settings.algorithms = algorithms;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::seconds(60);
  settings.log = LogLevel::quiet;
  return settings;
}

std::vector<int> alike(int nodes, int per_node = 1) {
  return std::vector<int>(static_cast<std::size_t>(nodes), per_node);
}

bool sums_are_canonical(int nodes, int per_node, MessageFilter filter = {}) {
  std::atomic<int> wrong{0};
  const auto all = test::summands_of(nodes * per_node, kLengths);
  const auto outcomes = test::as_ranks(
      alike(nodes, per_node), static_with(kHalves),
      [&](Communicator& comm) {
        for (const test::Summands& summands : all) {
          std::vector<float> data = summands.inputs[static_cast<std::size_t>(comm.rank())];
          const std::vector<float> input = data;
          const Shape shape{static_cast<std::int64_t>(data.size())};
          std::vector<float> other(data.size());
          comm.allreduce(view(input.data(), shape), view(other.data(), shape));
          if (!test::same_bits(other, summands.sum)) ++wrong;
          comm.allreduce(view(data.data(), shape));
          if (!test::same_bits(data, summands.sum)) ++wrong;
        }
      },
      std::move(filter));
  return test::all_returned(outcomes) && wrong == 0;
}

}  // namespace

TEST_CASE("sums by halves are canonical, in nodes of one rank and of several") {
  for (const int nodes : {2, 4, 8, 16}) {
    CAPTURE(nodes);
    CHECK(sums_are_canonical(nodes, 1));
    if (nodes < 16) CHECK(sums_are_canonical(nodes, 2));
  }
}

TEST_CASE("sums by halves of late messages are canonical") {
  std::atomic<int> messages{0};
  const auto late = [&](int from, int to, int tag) {
    if ((++messages * 7 + from + 3 * to + tag) % 5 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  };
  CHECK(sums_are_canonical(8, 1, late));
  CHECK(messages > 100);
}

namespace {

Tensor sixteen_bits(std::size_t count, unsigned seed) {
  const auto values = test::random_bfloat16(count, seed);
  Tensor tensor = Tensor::empty({static_cast<std::int64_t>(count)}, DType::bfloat16);
  std::memcpy(tensor.bytes(), values.data(), tensor.size_bytes());
  return tensor;
}

/// Rank 1's results of a sum, an average and a maximum of 16-bit values, in two tensors at once.
test::Bits results_of(const std::vector<int>& layout, Settings settings, bool reproducible) {
  settings.reproducible = reproducible;
  test::Bits found;
  const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& comm) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}) {
      const auto seed = static_cast<unsigned>(comm.rank());
      Tensor data = sixteen_bits(30'011, seed);
      comm.allreduce(data, op);
      if (comm.rank() == 1) test::append(found, data);
    }
  });
  CHECK(test::all_returned(outcomes));
  return found;
}

}  // namespace

TEST_CASE("no bit of 16-bit values depends on whether they go by halves") {
  for (const auto& layout : {alike(8), alike(4, 2), alike(2, 4)}) {
    for (const bool reproducible : {false, true}) {
      CAPTURE(layout.size());
      CAPTURE(reproducible);
      const auto expected =
          results_of(layout, static_with("exchange=direct,inline-shared=64"), reproducible);
      CHECK((results_of(layout, static_with(kHalves), reproducible) == expected));
    }
  }
}

TEST_CASE("an average by halves is divided once") {
  constexpr std::size_t kLength[] = {5003};
  const test::Summands summands = test::summands_of(8, kLength).front();
  std::vector<float> expected = summands.sum;
  for (float& value : expected) value /= 8;
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks(alike(8), static_with(kHalves), [&](Communicator& comm) {
    std::vector<float> data = summands.inputs[static_cast<std::size_t>(comm.rank())];
    comm.allreduce(view(data.data(), {5003}), ReduceOp::avg);
    if (!test::same_bits(data, expected)) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("an optimizer gets every element of a sum by halves once") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks(alike(4), static_with(kHalves), [&](Communicator& comm) {
    KVStore store = KVStore::create(comm);
    store.init(3, Tensor::full({20'000}, 1));
    store.set_optimizer(optimizer::sgd({.learning_rate = 0.5}));
    store.push(3, Tensor::full({20'000}, 2));
    Tensor weights = Tensor::zeros({20'000});
    store.pull(3, weights);
    for (const float value : weights.values<float>()) wrong += value != 1 - 0.5F * 8;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

// --- messages ------------------------------------------------------------------------------------

namespace {

/// The most messages of a kind that a rank has sent.
struct Sent {
  int handshakes = 0;
  int partial = 0;
  int results = 0;
};

Sent sent_in_calls(int nodes, std::size_t count, int calls, const std::string& algorithms) {
  std::vector<Sent> by_rank(static_cast<std::size_t>(nodes));
  const auto filter = [&](int from, int, int tag) {
    Sent& sent = by_rank[static_cast<std::size_t>(from)];  // each rank is a thread
    sent.handshakes += tag == collectives::kHandshakeTag;
    sent.partial += tag == collectives::kPartialTag;
    sent.results += tag == collectives::kResultTag;
    return true;
  };
  const auto outcomes = test::as_ranks(
      alike(nodes), static_with(algorithms),
      [&](Communicator& comm) {
        for (int call = 0; call < calls; ++call) {
          std::vector<float> values(count, 1.0F);
          comm.allreduce(view(values.data(), {static_cast<std::int64_t>(count)}));
        }
      },
      filter);
  CHECK(test::all_returned(outcomes));
  Sent most;
  for (const Sent& sent : by_rank) {
    most.handshakes = std::max(most.handshakes, sent.handshakes);
    most.partial = std::max(most.partial, sent.partial);
    most.results = std::max(most.results, sent.results);
  }
  return most;
}

}  // namespace

TEST_CASE("halves are halves, to a line, however few lines there are") {
  constexpr std::size_t kLine = 64;
  for (const int nodes : {2, 8, 64}) {
    for (const std::size_t lines : {1, 3, 17, 64, 1000}) {
      std::size_t all = 0;
      for (int node = 0; node < nodes; ++node) {
        collectives::Range before{0, lines * kLine};
        for (int round = 1; 1 << round <= nodes; ++round) {
          const auto kept = collectives::range_of({0, lines * kLine}, nodes,
                                                  collectives::kept_after(round, node, nodes));
          CHECK(kept.size() % kLine == 0);
          CHECK(kept.size() <= before.size() / 2 + kLine);
          CHECK(kept.begin >= before.begin);
          CHECK(kept.end <= before.end);
          before = kept;
        }
        all += before.size();
      }
      CHECK(all == lines * kLine);
    }
  }
}

TEST_CASE("a sum of middle size takes a message in each round there, and one in each round back") {
  constexpr int kCalls = 3;
  for (const int nodes : {8, 32}) {
    CAPTURE(nodes);
    const int rounds = std::countr_zero(static_cast<unsigned>(nodes));
    const Sent sent = sent_in_calls(nodes, 16'384, kCalls, nodes == 8 ? "halved=1M" : "");
    CHECK(sent.handshakes == kCalls * rounds);
    CHECK(sent.results == kCalls * rounds);
    CHECK(sent.partial == 0);
  }
}

TEST_CASE("an exchange that is asked for makes the larger sums") {
  const Sent sent = sent_in_calls(32, 16'384, 1, "exchange=halving");
  CHECK(sent.handshakes == 5);
  CHECK(sent.partial == 5);
  CHECK(sent.results == 5);
}

// --- mismatches and lost nodes -------------------------------------------------------------------

namespace {

/// All ranks but one make an allreduce of so many elements; that one makes another call. True if
/// all get the error, and work on.
bool all_are_told(int nodes, int per_node, int odd, const std::function<void(Communicator&)>& call,
                  const std::string& words) {
  std::atomic<int> told{0};
  const auto outcomes =
      test::as_ranks(alike(nodes, per_node), static_with(kHalves), [&](Communicator& comm) {
        for (int turn = 0; turn < 2; ++turn) {
          Tensor data = Tensor::ones({20'000});
          try {
            if (comm.rank() == odd) {
              call(comm);
            } else {
              comm.allreduce(data);
            }
          } catch (const Error& error) {
            const std::string text = error.what();
            const bool named = text.find("rank " + std::to_string(odd) + " ") != text.npos &&
                               text.find(words) != text.npos;
            const bool untouched = data.value(0) == 1 && data.value(19'999) == 1;
            if (named && untouched && error.recoverable()) ++told;
          }
          Tensor ones = Tensor::ones({20'000});
          comm.allreduce(ones);
          if (ones.value(19'999) != comm.size()) told = -1000;
        }
      });
  return test::all_returned(outcomes) && told == 2 * nodes * per_node;
}

}  // namespace

TEST_CASE("a call that differs from one by halves is named on all ranks, and nothing is written") {
  for (const int odd : {0, 5}) {
    CAPTURE(odd);
    for (const std::int64_t count : {1, 16, 19'999, 100'000, 2'000'000}) {
      CAPTURE(count);
      const auto other = [&](Communicator& comm) {
        Tensor data = Tensor::ones({count});
        comm.allreduce(data);
      };
      CHECK(all_are_told(8, 1, odd, other, "(" + std::to_string(count) + ")"));
    }
    CHECK(all_are_told(
        8, 1, odd, [](Communicator& comm) { comm.barrier(); }, "barrier"));
    const auto refused = [](Communicator& comm) {
      Tensor data = Tensor::ones({20'000});
      comm.broadcast(data, 99);
    };
    CHECK(all_are_told(8, 1, odd, refused, "99"));
    CHECK(all_are_told(
        4, 2, odd, [](Communicator& comm) { comm.barrier(); }, "barrier"));
  }
}

// The rank that errors name is tested in simulated_failure_test, whose clock stands still for ranks
// without a core.
TEST_CASE("a rank that is lost before or in a sum by halves ends the call on all others") {
  constexpr int kNodes = 8;
  constexpr int kLost = 3;
  for (const int tag : {collectives::kHandshakeTag, collectives::kResultTag}) {
    CAPTURE(tag);
    std::atomic<bool> hangs{false};
    std::atomic<int> waiting{kNodes - 1};
    std::barrier all_are_out(kNodes);  // out of the sum that is complete
    Settings settings = static_with(kHalves);
    settings.timeout = test::kShortDeadline;
    const auto outcomes = test::as_ranks(
        alike(kNodes), settings,
        [&](Communicator& comm) {
          Tensor data = Tensor::ones({20'000});
          comm.allreduce(data);
          all_are_out.arrive_and_wait();
          hangs = true;
          if (comm.rank() == kLost) return comm.allreduce(data);
          const test::CountDown leaving(waiting);
          comm.allreduce(data);
        },
        [&](int from, int, int sent) {
          while (hangs && from == kLost && sent == tag && waiting > 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          return true;
        });
    for (int rank = 0; rank < kNodes; ++rank) {
      if (rank == kLost) continue;
      CAPTURE(rank);
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      REQUIRE(outcome);
      CHECK(outcome->code() == ErrorCode::timeout);
      CHECK(std::string(outcome->what()).find(", which did not arrive") != std::string::npos);
    }
  }
}

// --- the choice ----------------------------------------------------------------------------------

namespace {

/// The sizes up to which sums go by halves, and up to which halves are tried.
std::pair<std::size_t, std::size_t> sizes_of(const std::vector<int>& nodes,
                                             const std::string& algorithms = "",
                                             const std::string& mode = "learn",
                                             bool reproducible = false) {
  Settings settings;
  settings.algorithms = algorithms;
  settings.tuning = mode;
  settings.reproducible = reproducible;
  const Tuning tuning = Tuning::choose(Topology::consecutive(0, nodes), settings,
                                       {.level1 = 32 << 10, .last_level = 32 << 20});
  return {tuning.halved_bytes, tuning.halved_tried_bytes};
}

}  // namespace

TEST_CASE("the number of nodes and of their ranks says which sums go by halves") {
  using Sizes = std::pair<std::size_t, std::size_t>;
  constexpr std::size_t kMost = 4096 * kKiB;
  CHECK(sizes_of(alike(8)) == Sizes{0, kMost});
  CHECK(sizes_of(alike(16)) == Sizes{0, kMost});
  CHECK(sizes_of(alike(32)) == Sizes{1024 * kKiB, kMost});  // one chunk
  CHECK(sizes_of(alike(256)) == Sizes{kMost, kMost});
  CHECK(sizes_of(alike(32), "", "static") == Sizes{1024 * kKiB, 0});
  CHECK(sizes_of(alike(16), "", "static") == Sizes{0, 0});
  CHECK(sizes_of(alike(32, 2)) == Sizes{128 * kKiB, 128 * kKiB});  // the size of an announcement
  CHECK(sizes_of(alike(32, 8)) == Sizes{32 * kKiB, 32 * kKiB});    // 256 KiB that one rank reads
  CHECK(sizes_of(alike(4)) == Sizes{0, 0});                        // handshakes=direct
  CHECK(sizes_of(alike(4), "handshakes=doubling") == Sizes{0, kMost});
  CHECK(sizes_of(alike(24)) == Sizes{0, 0});
  CHECK(sizes_of(alike(32), "exchange=halving") == Sizes{0, 0});
  CHECK(sizes_of(alike(32), "exchange=mpi") == Sizes{0, 0});
  CHECK(sizes_of(alike(8), "halved=64K,exchange=halving") == Sizes{64 * kKiB, 64 * kKiB});
  CHECK(sizes_of(alike(8), "exchange=halving,halved=64K") == Sizes{64 * kKiB, 64 * kKiB});
  CHECK(sizes_of(alike(32), "halved=0") == Sizes{0, 0});
  CHECK(sizes_of({2}) == Sizes{0, 0});
  std::vector<int> uneven = alike(32);
  uneven.front() = 2;
  CHECK(sizes_of(uneven, "", "learn", /*reproducible=*/true) == Sizes{0, 0});  // in another tree
}

TEST_CASE("the table says which sums go by halves") {
  const auto row = [](const std::vector<int>& nodes, const std::string& mode) {
    Settings settings;
    settings.tuning = mode;
    const Topology topology = Topology::consecutive(0, nodes);
    return Tuning::choose(topology, settings, {.level1 = 32 << 10, .last_level = 32 << 20})
        .table(topology)[1];
  };
  CHECK(row(alike(8), "learn")
            .starts_with("between 8 nodes: larger: sums of up to 4096 KiB by "
                         "halves with the handshakes, if learnt; exchange "));
  CHECK(row(alike(32), "learn")
            .starts_with("between 32 nodes: larger: sums of up to 1024 KiB by "
                         "halves with the handshakes, up to 4096 KiB if learnt; "
                         "exchange "));
  CHECK(row(alike(32), "static")
            .starts_with("between 32 nodes: larger: sums of up to 1024 KiB by "
                         "halves with the handshakes; exchange "));
  CHECK(row(alike(9), "learn").starts_with("between 9 nodes: larger: exchange "));
}

TEST_CASE("whether a sum goes by halves is learnt") {
  const Settings settings;
  const Tuning tuning = Tuning::choose(Topology::consecutive(0, alike(8)), settings,
                                       {.level1 = 32 << 10, .last_level = 32 << 20});
  constexpr std::size_t kBytes = 128 * kKiB;
  const collectives::CallClass call{.kind = collectives::Kind::allreduce,
                                    .between_nodes = true,
                                    .may_be_inline = true,
                                    .may_be_halved = true,
                                    .size = std::bit_width(kBytes - 1)};
  for (const collectives::Path& fastest :
       {collectives::kHalved, collectives::kWithHandshakes, collectives::Path{.pieces = 1}}) {
    collectives::Learner learner(tuning, 1, false);
    collectives::Path last;
    for (int i = 0; i < 300; ++i) {
      const bool announced = learner.plan(call).inputs == collectives::Inputs::announced;
      last = learner.choose(call, announced);
      learner.observe(last == fastest ? 500 : 1000);
    }
    CHECK(last == fastest);
    CHECK_FALSE(learner.is_learning());
    REQUIRE(learner.learnt().size() == 1);
    const std::string text = to_string(learner.learnt().front());
    const bool by_halves = text.find(" bytes: by halves, with the handshakes: ") != text.npos;
    CHECK(by_halves == (fastest == collectives::kHalved));
  }
}
