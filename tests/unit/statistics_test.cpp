// SPDX-License-Identifier: Apache-2.0
// The costs of calls, as the ranks count them: threads as ranks.
#include "tutti/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <doctest/doctest.h>

#include "tutti/kvstore.hpp"

#include "collectives/lanes/folding.hpp"
#include "collectives/wait/node_memory.hpp"
#include "runtime/job/group.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using tutti::collectives::Folding;
using tutti::collectives::FoldingRound;

namespace {

constexpr int kCalls = 5;

Settings patient() {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  return settings;
}

/// A job in which one rank makes its calls last: only after it has seen all others wait for it.
class LateRank {
 public:
  /// `waiting_messages`: the number of a call's messages that go between nodes before all wait for
  /// the late rank; `call_messages`: the number of all messages.
  LateRank(std::vector<int> nodes, int rank, int waiting_messages, int call_messages)
      : nodes_(std::move(nodes)),
        rank_(rank),
        waiting_messages_(waiting_messages),
        call_messages_(call_messages) {}

  /// Every rank's statistics.
  std::vector<Statistics> run(const Settings& settings = patient()) {
    const auto count = [&](int /*from*/, int /*to*/, int tag) {
      if (tag >= 0) ++messages_;  // others are messages that a rank has left
      return true;
    };
    auto groups = make_thread_groups(nodes_, settings, count);
    for (const auto& group : groups) {
      const auto peer = collectives::Peer::first_of(group->arena()->data());
      blocks_.push_back(&peer.control());
    }
    std::vector<Statistics> all(groups.size());
    const auto outcomes = test::run_ranks(std::move(groups), [&](Communicator& comm) {
      Tensor data = Tensor::ones({16});
      for (int call = 1; call <= kCalls; ++call) {
        if (comm.rank() == rank_) wait_until_all_wait(call);
        comm.allreduce(data);
      }
      all[static_cast<std::size_t>(comm.rank())] = comm.statistics();
    });
    REQUIRE(test::all_returned(outcomes));
    return all;
  }

 private:
  /// Waits until all ranks have announced the call, have sent all that they can, and sleep: then
  /// they sleep in the wait for the late rank.
  void wait_until_all_wait(int call) const {
    const int sent = (call - 1) * call_messages_ + waiting_messages_;
    const auto all_wait = [&] {
      return all_announced(call) && messages_ == sent && sleepers() + 1 == size();
    };
    do {
      while (!all_wait()) std::this_thread::yield();
      // A rank that sleeps may have looked just before another one arrived. It looks every
      // millisecond.
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    } while (!all_wait());
  }
  [[nodiscard]] int size() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] bool all_announced(int call) const {
    for (int rank = 0; rank < size(); ++rank) {
      const auto& calls = blocks_[static_cast<std::size_t>(rank)]->calls;
      if (rank != rank_ && !calls.is_in(static_cast<std::uint64_t>(call))) return false;
    }
    return true;
  }
  [[nodiscard]] int sleepers() const {
    int all = 0;
    for (const auto* block : blocks_) all += static_cast<int>(block->sleepers);
    return all;
  }

  std::vector<int> nodes_;
  int rank_;
  int waiting_messages_;
  int call_messages_;
  std::atomic<int> messages_{0};
  std::vector<collectives::ControlBlock*> blocks_;
};

/// A late rank in a job where every node sends its handshake directly to every other.
LateRank late_rank(const std::vector<int>& nodes, int rank) {
  const int others = static_cast<int>(nodes.size()) - 1;
  return {nodes, rank, others * others, others * (others + 1)};
}

/// True if all messages that a node waits for in this round have been sent to it, where each node
/// has begun as many rounds as `begun` says.
bool has_arrived(const std::vector<int>& begun, const FoldingRound& round, int index) {
  const auto has_spoken = [&](int node) {
    return node < 0 || begun[static_cast<std::size_t>(node)] > index;
  };
  return has_spoken(round.partner) && has_spoken(round.rest_from) && has_spoken(round.total_from);
}

/// The number of messages of a call in which sums are made on the way; without the late node, until
/// all others wait for it or for one that does.
int folded_messages(int nodes, int late = -1) {
  std::vector<int> begun(static_cast<std::size_t>(nodes), 0);  // rounds
  int messages = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int node = 0; node < nodes; ++node) {
      const Folding folding(nodes, node);
      int& own = begun[static_cast<std::size_t>(node)];
      if (node == late || own == folding.num_rounds()) continue;
      if (own > 0 && !has_arrived(begun, folding.round(own - 1), own - 1)) continue;
      const FoldingRound round = folding.round(own++);
      messages += static_cast<int>(round.own_to.size() + round.rest_to.size());
      messages += round.partner >= 0 ? 1 : 0;
      goes_on = true;
    }
  }
  return messages;
}

/// Checks that the late rank is the last of all calls, and of nothing else.
void check_blames(const Statistics& seen, int late_rank) {
  CAPTURE(seen.rank);
  const CallStatistics calls = seen.total("allreduce");
  CHECK(calls.calls == kCalls);
  CHECK(calls.bytes == kCalls * 64);
  CHECK(calls.waiting_seconds > 0);
  CHECK(calls.waiting_seconds <= calls.seconds);
  CHECK(calls.seconds <= seen.seconds);
  REQUIRE(calls.last.size() == 1);
  CHECK(calls.last.front().rank == late_rank);
  CHECK(calls.last.front().calls == kCalls);
  CHECK(calls.last.front().seconds == calls.waiting_seconds);
}

}  // namespace

TEST_CASE("a rank that comes late is the one that the others waited for") {
  for (const auto& nodes : std::vector<std::vector<int>>{{2}, {4}, {1, 1}, {2, 2}, {3, 1}}) {
    for (const int late : {0, nodes.size() == 1 ? nodes[0] - 1 : nodes[0]}) {
      CAPTURE(nodes.size());
      CAPTURE(late);
      for (const Statistics& seen : late_rank(nodes, late).run()) {
        if (seen.rank != late) check_blames(seen, late);
      }
    }
  }
}

TEST_CASE("a rank that comes last itself waits for nobody, and says so") {
  const CallStatistics calls = late_rank({2}, 1).run()[1].total("allreduce");
  CHECK(calls.waiting_seconds == 0);
  REQUIRE(calls.last.size() == 1);
  CHECK(calls.last.front().rank == 1);
  CHECK(calls.last.front().calls == kCalls);
}

TEST_CASE("among many nodes the late rank is known, too") {
  Settings settings = patient();
  settings.algorithms = "handshakes=doubling";
  for (const int nodes : {5, 8}) {
    for (int late = 0; late < nodes; ++late) {
      CAPTURE(nodes);
      CAPTURE(late);
      LateRank job(std::vector<int>(static_cast<std::size_t>(nodes), 1), late,
                   folded_messages(nodes, late), folded_messages(nodes));
      for (const Statistics& seen : job.run(settings)) {
        if (seen.rank != late) check_blames(seen, late);
      }
    }
  }
}

TEST_CASE("a store counts pushes and pulls by their lists of keys") {
  const auto outcomes = test::as_ranks({2}, patient(), [](Communicator& comm) {
    KVStore kv = KVStore::create(comm);
    const Tensor one = Tensor::ones({10});
    kv.init({3, 5, 7}, {one, one, one});
    Tensor x = Tensor::zeros({10});
    Tensor y = Tensor::zeros({10});
    for (int i = 0; i < 4; ++i) kv.push({5, 3}, {one, one});
    kv.push(7, one);
    kv.pushpull(7, one, x);
    kv.pull({3, 5}, {x, y});
    static_cast<void>(kv.view(3));
    kv.barrier();

    const Statistics seen = kv.statistics();
    const auto of = [&](const std::string& call, const std::vector<Key>& keys) {
      const auto found = std::ranges::find_if(seen.calls, [&](const CallStatistics& calls) {
        return calls.call == call && calls.keys == keys;
      });
      return found == seen.calls.end() ? CallStatistics{} : *found;
    };
    CHECK(of("push", {3, 5}).calls == 4);
    CHECK(of("push", {3, 5}).bytes == 4 * 80);
    CHECK(of("push", {7}).calls == 2);
    CHECK(of("pull", {3, 5}).calls == 1);
    CHECK(of("pull", {3, 5}).bytes == 80);
    CHECK(of("pull", {3, 5}).last.empty());
    CHECK(of("barrier", {}).calls == 1);
    CHECK(of("init", {}).calls == 1);
    CHECK(of("init", {}).bytes == 3 * 40);
    CHECK(of("view", {}).calls == 0);
    CHECK(seen.total("push").calls == 6);
    CHECK(seen.total().calls == 9);
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("a reduction by the program's own operation is one call, whatever it is made of") {
  const UserOp sum{.name = "sum",
                   .combine = [](TensorView left, ConstTensorView right) { left += right; },
                   .elementwise = true};
  const auto outcomes = test::as_ranks({2}, patient(), [&](Communicator& comm) {
    Tensor value = Tensor::ones({6});
    Tensor half = Tensor::ones({3});
    comm.allreduce(value, value, sum);
    comm.reduce(value, value, 0, sum);
    comm.reduce_scatter(value, half, sum);
    const Statistics statistics = comm.statistics();
    for (const char* call : {"allreduce_user_op", "reduce_user_op", "reduce_scatter_user_op"}) {
      CHECK(statistics.total(call).calls == 1);
      CHECK(statistics.total(call).bytes == value.size_bytes());
    }
    CHECK(statistics.calls.size() == 3);
  });
  CHECK(test::all_returned(outcomes));
}

TEST_CASE("calls of one rank alone wait for nobody") {
  KVStore kv = KVStore::create("local");
  kv.init("a", Tensor::ones({4}));
  kv.set_updater([&](const Key& key, ConstTensorView sum, TensorView stored) {
    Tensor inside = Tensor::zeros({4});
    kv.pull(key, inside);  // counts as part of the push
    stored += sum;
  });
  for (int i = 0; i < 3; ++i) kv.push("a", Tensor::ones({4}));
  const Statistics seen = kv.statistics();
  CHECK(seen.total("push").calls == 3);
  CHECK(seen.total("push").waiting_seconds == 0);
  CHECK(seen.total("push").seconds > 0);
  CHECK(seen.total("pull").calls == 0);
}

TEST_CASE("a call that is refused is counted, and calls after it as before") {
  KVStore kv = KVStore::create("local");
  kv.init("a", Tensor::ones({4}));
  CHECK_THROWS_AS(kv.push("a", Tensor::ones({5})), Error);
  CHECK_THROWS_AS(kv.pull("b", Tensor::ones({5})), Error);
  kv.push("a", Tensor::ones({4}));
  const Statistics seen = kv.statistics();
  CHECK(seen.total("push").calls == 2);
  CHECK(seen.total("pull").calls == 1);
  CHECK(std::ranges::count_if(seen.calls, [](const CallStatistics& calls) {
          return calls.call == "push" && calls.keys == std::vector<Key>{"a"} && calls.calls == 1;
        }) == 1);
}

TEST_CASE("statistics as a table have a line per kind of call, the longest first") {
  Statistics seen{.rank = 2, .seconds = 12.34, .calls = {}};
  seen.calls.push_back({.call = "push",
                        .keys = {1, 2, 3, 4, 5},
                        .calls = 10,
                        .bytes = 12'345'678,
                        .seconds = 3.5,
                        .waiting_seconds = 0.0125,
                        .last = {{1, 9, 0.012}, {2, 1, 0.0005}}});
  seen.calls.push_back({.call = "pull", .keys = {"fc"}, .calls = 1, .bytes = 12, .seconds = 3e-6});
  CHECK(to_string(seen) ==
        "rank 2, 12.3 s:\n"
        "       calls       bytes        time     waiting  call, and who came last\n"
        "          10     12.3 MB      3.50 s     12.5 ms  push of 5 keys: 1, 2, 3, 4, ...; "
        "rank 1 in 90 %\n"
        "           1        12 B     3.00 us     0.00 us  pull of key fc\n");
  CHECK(to_string(seen, 1).find("  and 1 more\n") != std::string::npos);
  const CallStatistics all = seen.total();
  CHECK(all.calls == 11);
  CHECK(all.last.front().rank == 1);
}
