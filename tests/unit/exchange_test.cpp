// SPDX-License-Identifier: Apache-2.0
// Exchanges between nodes, and the choice among them.
#include <atomic>
#include <doctest/doctest.h>

#include "tutti/error.hpp"

#include "collectives/choice/tuning.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using collectives::Exchange;
using collectives::Handshakes;
using collectives::Topology;
using collectives::Tuning;
using test::same_bits;
using test::values_of;

// --- exchanges -----------------------------------------------------------------------------------

// The algorithms between nodes that are chosen for many nodes or large data, with threads as ranks.

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

/// Makes allreduces of all sizes on nodes of equal size; true if every rank had the canonical sum.
bool sums_are_canonical(int nodes, int per_node, const char* algorithms,
                        tutti::MessageFilter filter = {}) {
  std::atomic<int> wrong{0};
  const std::vector<int> layout(static_cast<std::size_t>(nodes), per_node);
  const auto all = test::summands_of(nodes * per_node, kLengths);
  const auto outcomes = test::as_ranks(
      layout, with(algorithms),
      [&](Communicator& comm) {
        for (const test::Summands& summands : all) {
          std::vector<float> data = summands.inputs[static_cast<std::size_t>(comm.rank())];
          comm.allreduce(view(data.data(), {static_cast<std::int64_t>(data.size())}));
          if (!same_bits(data, summands.sum)) ++wrong;
        }
      },
      std::move(filter));
  return test::all_returned(outcomes) && wrong == 0;
}

}  // namespace

TEST_CASE("halving gives the canonical sum for any number of nodes") {
  for (const int nodes : {2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 19}) {
    if (test::kFewCases && nodes > 8) break;
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

TEST_CASE("an average is the canonical sum, divided once, by any exchange") {
  constexpr std::size_t kLength[] = {5003};
  for (const char* algorithms : {"exchange=direct", "exchange=halving", "handshakes=doubling"}) {
    for (const int nodes : {2, 3, 4, 7, 9}) {
      const test::Summands summands = test::summands_of(nodes, kLength).front();
      std::vector<float> expected = summands.sum;
      for (float& value : expected) value /= static_cast<float>(nodes);
      std::atomic<int> wrong{0};
      const std::vector<int> layout(static_cast<std::size_t>(nodes), 1);
      const auto outcomes = test::as_ranks(layout, with(algorithms), [&](Communicator& comm) {
        const auto& input = summands.inputs[static_cast<std::size_t>(comm.rank())];
        for (const std::int64_t count : {5, 5003}) {
          std::vector<float> data(input.begin(), input.begin() + count);
          comm.allreduce(view(data.data(), {count}), ReduceOp::avg);
          if (!same_bits(data, std::span(expected).first(data.size()))) ++wrong;
        }
      });
      CAPTURE(algorithms);
      CAPTURE(nodes);
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
    }
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

TEST_CASE("handshakes by doubling bring small data of one source to every node") {
  for (const int nodes : {2, 3, 5, 8, 11}) {
    CAPTURE(nodes);
    std::atomic<int> wrong{0};
    const std::vector<int> layout(static_cast<std::size_t>(nodes), 2);
    const auto outcomes =
        test::as_ranks(layout, with("handshakes=doubling"), [&](Communicator& comm) {
          const float own = static_cast<float>(comm.rank() + 1);
          std::vector<float> all(static_cast<std::size_t>(comm.size()), 0.0f);
          comm.allgather(view(&own, {1}), view(all.data(), {comm.size()}));
          for (int rank = 0; rank < comm.size(); ++rank) {
            if (all[static_cast<std::size_t>(rank)] != static_cast<float>(rank + 1)) ++wrong;
            float value = comm.rank() == rank ? own : -1.0f;
            comm.broadcast(view(&value, {1}), rank);
            if (value != static_cast<float>(rank + 1)) ++wrong;
          }
        });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

TEST_CASE("reproducible sums are right where nodes of one partial sum each are in another tree") {
  constexpr std::size_t kSizes[] = {40, 2500};
  std::vector<int> many(33, 1);  // halving would be chosen for so many nodes of equal size
  many.front() = 2;
  for (const std::vector<int>& layout : {std::vector<int>{4, 2, 2}, {3, 3}, many}) {
    CAPTURE(layout.size());
    const auto all = test::summands_of(test::size_of_job(layout), kSizes);
    Settings settings = with(layout == many ? "" : "handshakes=doubling");
    settings.reproducible = true;
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& comm) {
      for (const test::Summands& summands : all) {
        std::vector<float> data = summands.inputs[static_cast<std::size_t>(comm.rank())];
        comm.allreduce(view(data.data(), {static_cast<std::int64_t>(data.size())}));
        if (!same_bits(data, summands.sum)) ++wrong;
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
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
    constexpr std::size_t kCount = 6004;
    constexpr std::size_t kAll[] = {8 * kCount};
    const test::Summands summands = test::summands_of(8, kAll).front();
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks({2, 2, 2, 2}, with(algorithms), [&](Communicator& comm) {
      const std::vector<float>& input = summands.inputs[static_cast<std::size_t>(comm.rank())];
      const std::vector<float>& expected = summands.sum;
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
  constexpr std::size_t kCount = 150001;  // above the size from which a broadcast is a chain
  for (const auto& layout : std::vector<std::vector<int>>{{1, 1}, {1, 1, 1, 1}, {2, 1, 3}}) {
    std::atomic<int> wrong{0};
    const auto outcomes = test::as_ranks(layout, with(""), [&](Communicator& comm) {
      for (int root = 0; root < comm.size(); ++root) {
        const auto expected = values_of(root, kCount);
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

// --- the choice ----------------------------------------------------------------------------------

// The algorithm that carries a call, and the settings that override it.

namespace {

constexpr collectives::CacheSizes kCaches{.level1 = 32 << 10, .last_level = 32 << 20};

Tuning tuning_of(const std::vector<int>& nodes, const Settings& settings = {}) {
  return Tuning::choose(Topology::consecutive(0, nodes), settings, kCaches);
}

Settings with(const std::string& algorithms) {
  Settings settings;
  settings.algorithms = algorithms;
  return settings;
}

std::string refusal_of(const std::vector<int>& nodes, const Settings& settings) {
  try {
    tuning_of(nodes, settings);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "was accepted";
}

}  // namespace

TEST_CASE("small data is inline, less of it the more payloads a rank would read") {
  CHECK(tuning_of({2}).inline_shared_bytes == 1024);
  CHECK(tuning_of({2}).inline_private_bytes == 8192);
  CHECK(tuning_of({3}).inline_private_bytes == 4096);
  CHECK(tuning_of({64}).inline_private_bytes == 1024);
  CHECK(tuning_of({1, 1}).inline_shared_bytes == 65536);
  CHECK(tuning_of({2, 2}).inline_shared_bytes == 32768);  // 64 KiB that the first rank reads
  CHECK(tuning_of({1, 1, 1}).inline_shared_bytes == 16384);
  CHECK(tuning_of({5, 5}).inline_shared_bytes == 13056);  // 64 KiB that the first rank reads
  CHECK(tuning_of({64, 64}).inline_shared_bytes == 8192);
}

TEST_CASE(
    "small data is inline up to a limit of what a node receives, however many nodes there are") {
  const auto inline_bytes = [](int nodes, const char* algorithms) {
    const Tuning tuning =
        tuning_of(std::vector<int>(static_cast<std::size_t>(nodes), 1), with(algorithms));
    CHECK(tuning.inline_private_bytes == tuning.inline_shared_bytes);
    return tuning.inline_shared_bytes;
  };
  CHECK(inline_bytes(7, "") == 16384);    // all of them 112 KiB
  CHECK(inline_bytes(8, "") == 32768);    // one sum in each of 3 rounds
  CHECK(inline_bytes(9, "") == 32768);    // and 4
  CHECK(inline_bytes(32, "") == 32768);   // one sum in each of 5 rounds
  CHECK(inline_bytes(128, "") == 32768);  // 7 rounds
  CHECK(inline_bytes(100, "") == 32768);
  CHECK(inline_bytes(1024, "") == 26176);
  CHECK(inline_bytes(1023, "") == 26176);
  CHECK(inline_bytes(128, "handshakes=direct") == 896);
  Settings reproducible;
  reproducible.reproducible = true;
  std::vector<int> uneven(32, 1);
  uneven.front() = 2;  // in another tree, which gathers all sums
  CHECK(tuning_of(uneven, reproducible).inline_shared_bytes == 8192);
}

TEST_CASE("which sums are tried with the handshakes and after them") {
  const auto tried = [](const std::vector<int>& nodes, const char* algorithms = "",
                        const char* mode = "learn") {
    Settings settings = with(algorithms);
    settings.tuning = mode;
    const Tuning tuning = tuning_of(nodes, settings);
    return std::pair(tuning.inline_untried_bytes, tuning.inline_tried_bytes);
  };
  using Sizes = std::pair<std::size_t, std::size_t>;
  constexpr std::size_t kKiB = 1024;
  CHECK(tried({1, 1}) == Sizes{8 * kKiB, 128 * kKiB});
  CHECK(tried({4, 4}) == Sizes{8 * kKiB, 64 * kKiB});  // 256 KiB that the first rank reads
  CHECK(tried(std::vector<int>(16, 1)) == Sizes{8 * kKiB, 128 * kKiB});
  CHECK(tried(std::vector<int>(9, 1)) == Sizes{8 * kKiB, 128 * kKiB});
  CHECK(tried(std::vector<int>(1023, 1)) == Sizes{8 * kKiB, 104832});  // 1 MiB of ten sums
  CHECK(tried({1, 1}, "", "static").second == 0);
  CHECK(tried({1, 1}, "inline-shared=8K").second == 0);
  CHECK(tried({1, 1}, "exchange=mpi").second == 0);  // its sums have other bits
  CHECK(tried({2}).second == 0);
}

TEST_CASE("the number of nodes and of local ranks chooses") {
  CHECK(tuning_of({4, 4}).exchange == Exchange::direct);
  CHECK(tuning_of(std::vector<int>(32, 1)).exchange == Exchange::direct);
  CHECK(tuning_of(std::vector<int>(33, 1)).exchange == Exchange::halving);
  CHECK(tuning_of(std::vector<int>(7, 1)).handshakes == Handshakes::direct);
  CHECK(tuning_of(std::vector<int>(8, 1)).handshakes == Handshakes::doubling);
  CHECK(tuning_of({16}).wait_group == 16);
  CHECK(tuning_of({17}).wait_group == 5);
  CHECK(tuning_of({1}).streamed_slot_bytes == 16 << 10);
  CHECK(tuning_of({2}).own_sum_ranks == 2);
  CHECK(tuning_of({2}).direct_output_bytes == 256 << 10);
  CHECK(tuning_of({1, 1}).chain_bytes == 512 << 10);
}

TEST_CASE("a rank has as many threads as it has cores, up to 8, unless it is told") {
  const auto threads = [](int cores_per_rank, int setting = 0) {
    Topology topology = Topology::consecutive(0, {2});
    topology.cores_per_rank = cores_per_rank;
    Settings settings;
    settings.threads = setting;
    return Tuning::choose(topology, settings, kCaches).threads;
  };
  CHECK(threads(1) == 1);
  CHECK(threads(3) == 3);
  CHECK(threads(64) == 8);
  CHECK(threads(64, 12) == 12);
  CHECK(threads(4, 1) == 1);
  CHECK(tuning_of({2},
                  [] {
                    Settings settings;
                    settings.threads = 3;
                    return settings;
                  }())
            .table(Topology::consecutive(0, {2}))
            .back() == "in a rank: 3 threads from 256 KiB");
}

TEST_CASE("the chunks of a node are for all threads of a rank, and up to 16 MiB") {
  const auto chunk_bytes = [](const std::vector<int>& nodes, int threads) {
    Settings settings;
    settings.threads = threads;
    return tuning_of(nodes, settings).chunk_bytes;
  };
  CHECK(chunk_bytes({2}, 1) == 256 << 10);
  CHECK(chunk_bytes({2}, 4) == 1 << 20);
  CHECK(chunk_bytes({2}, 200) == 16 << 20);
  CHECK(chunk_bytes({1}, 4) == 256 << 10);
  CHECK(chunk_bytes({2, 2}, 4) == chunk_bytes({2, 2}, 1));
}

TEST_CASE("what no cache holds is written past the caches") {
  using collectives::WritePolicy;
  const Tuning tuning = tuning_of({4});
  CHECK(tuning.slot_writes((16 << 10) - 1) == WritePolicy::cached);
  CHECK(tuning.slot_writes(16 << 10) == WritePolicy::streaming);
  CHECK(tuning.output_writes(4 << 20, 4) ==
        WritePolicy::cached);  // 4 inputs and 4 outputs of 4 MiB
  CHECK(tuning.output_writes((4 << 20) + 1, 4) == WritePolicy::streaming);
}

TEST_CASE("nodes with several partial sums each, or in another tree, keep to the direct exchange") {
  Settings reproducible;
  reproducible.reproducible = true;
  const std::vector<int> uneven(33, 3);
  CHECK(tuning_of(uneven).exchange == Exchange::halving);
  CHECK(tuning_of(uneven, reproducible).exchange == Exchange::direct);
  std::vector<int> in_another_tree(33, 1);
  in_another_tree.front() = 2;
  CHECK(tuning_of(in_another_tree, reproducible).exchange == Exchange::direct);
}

TEST_CASE("what a rank has on its way is bounded, however many nodes there are") {
  constexpr std::size_t kMost = std::size_t{32} << 20;
  Settings settings;
  for (const int per_node : {1, 2, 8}) {
    for (const int nodes : {2, 16, 64, 100, 512, 4096}) {
      CAPTURE(nodes);
      CAPTURE(per_node);
      const std::vector<int> layout(static_cast<std::size_t>(nodes), per_node);
      const Tuning tuning = Tuning::choose(Topology::consecutive(0, layout), settings, {});
      const std::size_t share = tuning.chunk_bytes / static_cast<std::size_t>(per_node);
      CHECK(tuning.chunks_in_flight >= 2);  // one is summed while the next one travels
      CHECK(tuning.chunks_in_flight * share <= kMost);
      if (nodes <= 16) CHECK(tuning.chunks_in_flight == 16);
    }
  }
}

TEST_CASE("every choice can be overridden") {
  const Tuning tuning = tuning_of({4}, with("inline-shared=128,inline-private=2K,streamed-slots=1M,"
                                            "wait-group=2,in-flight=3,handshakes=doubling,"
                                            "exchange=mpi,streamed-outputs=3M,direct-outputs=4M,"
                                            "chain=5M,own-sums=6,pieces=4"));
  CHECK(tuning.streamed_output_bytes == 3 << 20);
  CHECK(tuning.direct_output_bytes == 4 << 20);
  CHECK(tuning.chain_bytes == 5 << 20);
  CHECK(tuning.own_sum_ranks == 6);
  CHECK(tuning.inline_shared_bytes == 128);
  CHECK(tuning.inline_private_bytes == 2048);
  CHECK(tuning.streamed_slot_bytes == 1 << 20);
  CHECK(tuning.wait_group == 2);
  CHECK(tuning.chunks_in_flight == 3);
  CHECK(tuning.pieces == 4);
  CHECK(tuning.handshakes == Handshakes::doubling);
  CHECK(tuning.exchange == Exchange::mpi);
}

TEST_CASE("an override that does not exist or fit is refused, with what is known") {
  const auto refused = [](const std::string& algorithms, const std::vector<int>& nodes = {2}) {
    return refusal_of(nodes, with(algorithms));
  };
  CHECK(
      refused("rings=1") ==
      "TUTTI_ALGORITHMS: 'rings=1': expected inline-shared=BYTES, inline-private=BYTES, "
      "streamed-slots=BYTES, streamed-outputs=BYTES, direct-outputs=BYTES, ring=BYTES, "
      "ring-chunk=BYTES, own-sums=RANKS, "
      "inputs=announced|staged|swapped|fetched, results=spread|own|fetched|updated, paths=in-turn, "
      "wait-group=RANKS, in-flight=CHUNKS, pieces=1|2|4|8, chain=BYTES, halved=BYTES, "
      "handshakes=direct|doubling or exchange=direct|halving|mpi, separated by commas");
  CHECK(refused("wait-group=2,exchange=ring") ==
        "TUTTI_ALGORITHMS: 'exchange=ring': expected one of direct, halving, mpi");
  CHECK(refused("handshakes") ==
        "TUTTI_ALGORITHMS: 'handshakes': expected one of direct, doubling");
  CHECK(refused("inline-shared=200000") ==
        "TUTTI_ALGORITHMS: 'inline-shared=200000': expected at most 128K");
  CHECK(refused("halved=5M") == "TUTTI_ALGORITHMS: 'halved=5M': expected at most 4096K");
  for (const std::string wrong : {"pieces=3", "pieces=16"}) {
    CHECK(refused(wrong) == "TUTTI_ALGORITHMS: '" + wrong + "': expected 1, 2, 4 or 8");
  }
  CHECK(refused("pieces=0") == "TUTTI_ALGORITHMS: 'pieces=0': expected a number of pieces above 0");
  for (const std::string name : {"inline-private", "streamed-slots", "streamed-outputs",
                                 "direct-outputs", "chain", "halved"}) {
    const std::string word = name + "=some";
    CHECK(refused(word).starts_with("TUTTI_ALGORITHMS: '" + word + "': 'some' is not a size: "));
  }
  CHECK(refused("wait-group=0") ==
        "TUTTI_ALGORITHMS: 'wait-group=0': expected a number of ranks above 0");
}

TEST_CASE("an exchange that cannot keep the promised order is refused") {
  Settings settings = with("exchange=mpi");
  settings.reproducible = true;
  CHECK(refusal_of({1, 1}, settings) ==
        "TUTTI_ALGORITHMS: 'exchange=mpi': expected direct or halving: with TUTTI_REPRODUCIBLE=1 "
        "the order of summation is not MPI's");
  settings.algorithms = "exchange=halving";
  CHECK(
      refusal_of({3, 3}, settings) ==
      "TUTTI_ALGORITHMS: 'exchange=halving': expected direct: with TUTTI_REPRODUCIBLE=1 the order "
      "of summation in this layout is not by nodes");
  CHECK(refusal_of({4, 2, 2}, settings).find("not by nodes") != std::string::npos);
  CHECK_NOTHROW(tuning_of({2, 2}, settings));
}

TEST_CASE("the table says what was chosen") {
  const auto table = [](const std::vector<int>& nodes) {
    return tuning_of(nodes).table(Topology::consecutive(0, nodes));
  };
  CHECK(
      table({20}) ==
      std::vector<std::string>{
          "in the node (20 ranks): the store's memory: up to 1 KiB inline, then direct",
          "in the node (20 ranks): ordinary memory: up to 1 KiB inline, then in chunks of 256 "
          "KiB",
          "routes: tiny up to 32 B, small up to 1 KiB, announced up to 8 KiB if the path says so, "
          "then by path",
          "in the node (20 ranks): past the caches: scratch from 16 KiB, outputs if all data is "
          "above 32768 KiB",
          "in the node (20 ranks): pushpull writes its outputs at once from 256 KiB",
          "in the node (20 ranks): two-level waits, in groups of 5", "in a rank: one thread"});
  CHECK(table({2, 2}) ==
        std::vector<std::string>{
            "between 2 nodes: up to 32 KiB with the handshakes (direct); for sums of 8 KiB to 128 "
            "KiB that is learnt",
            "between 2 nodes: larger: exchange direct, in chunks of 128 KiB, 16 in flight, "
            "in messages of up to 8 pieces",
            "between 2 nodes: broadcasts: to all nodes at once, from 512 KiB from node to node",
            "routes: small up to 8 KiB, announced up to 128 KiB if the path says so, then by path",
            "in the node (2 ranks): past the caches: scratch from 16 KiB, outputs if all data is "
            "above 32768 KiB",
            "in the node (2 ranks): pushpull writes its outputs at once from 256 KiB",
            "in the node (2 ranks): flat waits", "in a rank: one thread"});
  CHECK(table({2})[1] ==
        "in the node (2 ranks): ordinary memory: up to 8 KiB inline, then in chunks of 256 KiB, "
        "each rank sums for itself");
}
