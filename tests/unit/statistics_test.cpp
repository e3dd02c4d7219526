// SPDX-License-Identifier: Apache-2.0
// What calls cost, as the ranks count it: threads as ranks.
#include "tutti/statistics.hpp"

#include <algorithm>
#include <doctest/doctest.h>
#include <mutex>

#include "tutti/kvstore.hpp"

#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr auto kLate = std::chrono::milliseconds(30);
constexpr double kLateSeconds = 0.030;
constexpr int kCalls = 5;

Settings patient() {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  return settings;
}

/// Every rank's statistics of calls to which one comes late.
std::vector<Statistics> with_a_late_rank(const std::vector<int>& nodes, int late_rank,
                                         const Settings& settings = patient()) {
  std::mutex mutex;
  std::vector<Statistics> all;
  const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
    Tensor data = Tensor::ones({16});
    for (int i = 0; i < kCalls; ++i) {
      if (comm.rank() == late_rank) std::this_thread::sleep_for(kLate);
      comm.allreduce(data);
    }
    const std::lock_guard lock(mutex);
    all.push_back(comm.statistics());
  });
  REQUIRE(test::all_returned(outcomes));
  std::ranges::sort(all, {}, &Statistics::rank);
  return all;
}

}  // namespace

TEST_CASE("a rank that comes late is the one that the others waited for") {
  for (const auto& nodes : std::vector<std::vector<int>>{{2}, {4}, {1, 1}, {2, 2}, {3, 1}}) {
    for (const int late_rank : {0, nodes.size() == 1 ? nodes[0] - 1 : nodes[0]}) {
      CAPTURE(nodes.size());
      CAPTURE(late_rank);
      for (const Statistics& seen : with_a_late_rank(nodes, late_rank)) {
        CAPTURE(seen.rank);
        const CallStatistics calls = seen.total("allreduce");
        CHECK(calls.calls == kCalls);
        CHECK(calls.bytes == kCalls * 64);
        CHECK(calls.waiting_seconds <= calls.seconds);
        CHECK(calls.seconds <= seen.seconds);
        if (seen.rank == late_rank) continue;
        REQUIRE_FALSE(calls.last.empty());
        CHECK(calls.last.front().rank == late_rank);
        CHECK(calls.last.front().seconds >= kCalls * kLateSeconds / 2);
      }
    }
  }
}

TEST_CASE("a rank that comes last itself waits little, and says so") {
  const auto all = with_a_late_rank({2}, 1);
  const CallStatistics of_late = all[1].total("allreduce");
  CHECK(of_late.waiting_seconds < all[0].total("allreduce").waiting_seconds);
  CHECK(std::ranges::any_of(of_late.last, [](const LastRank& late) { return late.rank == 1; }));
}

TEST_CASE("among many nodes the late rank is known, too") {
  Settings settings = patient();
  settings.algorithms = "greetings=doubling";
  for (int late_rank = 0; late_rank < 5; ++late_rank) {
    CAPTURE(late_rank);
    for (const Statistics& seen : with_a_late_rank({1, 1, 1, 1, 1}, late_rank, settings)) {
      CAPTURE(seen.rank);
      if (seen.rank == late_rank) continue;
      CHECK(seen.total("allreduce").last.front().rank == late_rank);
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

TEST_CASE("calls of one rank alone wait for nobody") {
  KVStore kv = KVStore::create("local");
  kv.init("a", Tensor::ones({4}));
  kv.set_updater([&](const Key& key, ConstTensorView sum, TensorView stored) {
    Tensor inside = Tensor::zeros({4});
    kv.pull(key, inside);  // part of the push
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
