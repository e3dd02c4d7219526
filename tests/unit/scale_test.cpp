// SPDX-License-Identifier: Apache-2.0
// The costs that grow with the number of nodes: messages are counted, with threads as ranks.
#include <atomic>
#include <bit>
#include <chrono>
#include <doctest/doctest.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/lanes/exchange.hpp"
#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr int kNoticeTag = -1;
constexpr int kNodes = test::kFewRounds ? 9 : 16;
constexpr int kRanksPerNode = test::kFewRounds ? 2 : 16;

/// Counts the messages that ranks send to other nodes.
class MessageCounter {
 public:
  MessageFilter filter() {
    return [this](int from, int, int tag) {
      const std::lock_guard lock(mutex_);
      ++sent_[tag][from];
      return true;
    };
  }
  /// The most that one of the nodes, which are of equal size, has sent.
  [[nodiscard]] int most_of_a_node(int tag, int ranks_per_node) {
    const std::lock_guard lock(mutex_);
    std::map<int, int> by_node;
    int most = 0;
    for (const auto& [rank, count] : sent_[tag]) {
      most = std::max(most, by_node[rank / ranks_per_node] += count);
    }
    return most;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::map<int, int>> sent_;  ///< by tag and rank
};

Settings quick(double timeout_seconds) {
  Settings settings;
  settings.piece_bytes = 4096;     // keeps the memory of many threads small
  settings.log = LogLevel::quiet;  // each of the other ranks would warn of a lost rank
  settings.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_seconds));
  return settings;
}

int rounds_of(int nodes) { return std::bit_width(static_cast<unsigned>(nodes - 1)); }

/// All ranks meet; those of `staying` nodes meet again, without a deadline, after the others have
/// left.
void check_that_who_stays_learns(int nodes, int per_node, int staying) {
  constexpr double kNever = 3600;
  CAPTURE(nodes);
  CAPTURE(staying);
  const auto stays = [&](int rank) {
    return rank / per_node * 5 % nodes < staying;  // 5 and these numbers have no divisor
  };
  const auto outcomes = test::as_ranks(std::vector<int>(static_cast<std::size_t>(nodes), per_node),
                                       quick(kNever), [&](Communicator& comm) {
                                         comm.barrier();
                                         if (stays(comm.rank())) comm.barrier();
                                       });
  for (int rank = 0; rank < nodes * per_node; ++rank) {
    if (!stays(rank)) continue;  // it may learn of the failure while its barrier ends
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    REQUIRE(outcome);
    CHECK(std::string(outcome->what()).find("left before this call") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("the end of a job is two messages per node and doubling of the nodes") {
  struct Case {
    int nodes;
    int ranks_per_node;
  };
  for (const Case& layout : {Case{kNodes, kRanksPerNode}, Case{9, 1}, Case{23, 2}}) {
    const int nodes = layout.nodes;
    const int ranks_per_node = layout.ranks_per_node;
    CAPTURE(nodes);
    MessageCounter counter;
    const auto outcomes = test::as_ranks(
        std::vector<int>(static_cast<std::size_t>(nodes), ranks_per_node), quick(60),
        [](Communicator& comm) { comm.barrier(); }, counter.filter());
    CHECK(test::all_returned(outcomes));
    const int most = counter.most_of_a_node(kNoticeTag, ranks_per_node);
    CHECK(most > 0);
    CHECK(most <= 2 * rounds_of(nodes));
  }
}

TEST_CASE("a small allreduce is a message per node and doubling of the nodes, or two at most") {
  struct Case {
    int nodes;
    std::size_t count;
  };
  for (const Case& one : {Case{9, 1}, Case{13, 1}, Case{16, 1}, Case{17, 1}, Case{24, 4096},
                          Case{16, 2048}, Case{32, 2048}}) {
    const int nodes = one.nodes;
    CAPTURE(nodes);
    MessageCounter counter;
    constexpr int kCalls = 5;
    const std::size_t elements = one.count;
    const auto sum = static_cast<float>(nodes);
    const auto outcomes = test::as_ranks(
        std::vector<int>(static_cast<std::size_t>(nodes), 1), quick(60),
        [&](Communicator& comm) {
          for (int call = 0; call < kCalls; ++call) {
            std::vector<float> values(elements, 1.0f);
            comm.allreduce(view(values.data(), {static_cast<std::int64_t>(elements)}));
            if (values.back() != sum) throw Error(ErrorCode::divergence, "the sum");
          }
        },
        counter.filter());
    CHECK(test::all_returned(outcomes));
    const int most = counter.most_of_a_node(collectives::kHandshakeTag, 1);
    const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(nodes));
    if (is_power_of_two) CHECK(most == kCalls * rounds_of(nodes));
    CHECK(most >= kCalls);
    CHECK(most <= 2 * kCalls * rounds_of(nodes));
    CHECK(counter.most_of_a_node(collectives::kPartialTag, 1) == 0);
    CHECK(counter.most_of_a_node(collectives::kResultTag, 1) == 0);
  }
}

TEST_CASE("an allgather is one message per pair of nodes, whatever their ranks") {
  constexpr std::int64_t kCounts[] = {1, 3, 40};
  constexpr std::int64_t kRanks = std::int64_t{kNodes} * kRanksPerNode;
  MessageCounter counter;
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks(
      std::vector<int>(kNodes, kRanksPerNode), quick(60),
      [&](Communicator& comm) {
        for (const std::int64_t count : kCounts) {
          const std::vector<std::int32_t> own(static_cast<std::size_t>(count), comm.rank());
          std::vector<std::int32_t> all(static_cast<std::size_t>(count * kRanks), -1);
          comm.allgather(view(own.data(), {count}), view(all.data(), {count * kRanks}));
          for (std::int64_t i = 0; i < count * kRanks; ++i) {
            if (all[static_cast<std::size_t>(i)] != i / count) ++wrong;
          }
        }
      },
      counter.filter());
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
  constexpr int kCalls = std::size(kCounts);
  CHECK(counter.most_of_a_node(collectives::kResultTag, kRanksPerNode) <= kCalls * (kNodes - 1));
}

TEST_CASE("many nodes learn without a deadline that one has left, whoever is still there") {
  for (const int per_node : {1, 2}) {
    for (const int nodes : {9, 12, 17}) {
      for (const int staying : {1, 2, nodes / 2, nodes - 1}) {
        check_that_who_stays_learns(nodes, per_node, staying);
      }
    }
  }
}
