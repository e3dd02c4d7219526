// SPDX-License-Identifier: Apache-2.0
// Ranks that come to a call at different times name the one that does not come, however many wait
// for each other between them and it. Threads as ranks.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/threads.hpp"
#include "tutti/kvstore.hpp"

using tutti::Communicator;
using tutti::ErrorCode;
using tutti::Settings;
using tutti::Tensor;

namespace {

using std::chrono::milliseconds;

Settings with_short_deadline(const std::string& algorithms = "") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  settings.log = tutti::LogLevel::quiet;
  settings.algorithms = algorithms;
  return settings;
}

/// All ranks but `lost` make a call, each so much later than the first. What they throw.
test::Outcomes without(int lost, const std::vector<int>& node_sizes, const Settings& settings,
                       const std::vector<milliseconds>& delays,
                       const std::function<void(Communicator&)>& call) {
  std::atomic<int> waiting{test::size_of_job(node_sizes) - 1};
  return test::as_ranks(node_sizes, settings, [&](Communicator& comm) {
    if (comm.rank() == lost) {
      while (waiting > 0) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const test::CountDown leaving(waiting);
    std::this_thread::sleep_for(delays[static_cast<std::size_t>(comm.rank())]);
    call(comm);
  });
}

bool all_wait_for(int lost, test::Outcomes outcomes) {
  outcomes.erase(outcomes.begin() + lost);
  return test::all_say(outcomes, ErrorCode::timeout,
                       " for rank " + std::to_string(lost) + " (");
}

void barrier(Communicator& comm) { comm.barrier(); }

void sum(Communicator& comm) {
  Tensor data = Tensor::ones({20'000});
  comm.allreduce(data);
}

}  // namespace

TEST_CASE("who waits for the missing rank names it, though another has waited longer") {
  // Rank 0 waits for rank 1, which comes long after it, and waits for rank 2 of its node.
  const std::vector<milliseconds> delays{milliseconds(0), milliseconds(1500)};
  for (const auto& call : {barrier, sum}) {
    auto outcomes = without(2, {1, 2}, with_short_deadline(), delays, call);
    CHECK(all_wait_for(2, outcomes));
    outcomes.pop_back();
    CHECK(test::all_say(outcomes, ErrorCode::timeout, "another rank can wait no longer"));
  }
}

TEST_CASE("nodes that come one after the other name the last, which does not come") {
  const std::vector<int> nodes(16, 1);
  for (const int lost : {0, 15}) {
    CAPTURE(lost);
    std::vector<milliseconds> delays;
    for (int rank = 0; rank < 16; ++rank) {
      delays.emplace_back(80 * (lost == 0 ? 15 - rank : rank));
    }
    const auto& call = lost == 0 ? barrier : sum;
    CHECK(all_wait_for(lost, without(lost, nodes, with_short_deadline(), delays, call)));
    const Settings halves = with_short_deadline("halved=1M");
    CHECK(all_wait_for(lost, without(lost, nodes, halves, delays, sum)));
  }
}

TEST_CASE("ranks of a node that wait for its first one do not name it") {
  // The first ranks of nodes wait for each other. They come last, but for the lost one.
  for (const int lost : {2, 4}) {
    CAPTURE(lost);
    const std::vector<milliseconds> delays{milliseconds(600), milliseconds(0),   milliseconds(0),
                                           milliseconds(0),   milliseconds(600), milliseconds(0)};
    const auto& call = lost == 2 ? barrier : sum;
    CHECK(all_wait_for(lost, without(lost, {3, 3}, with_short_deadline(), delays, call)));
  }
}
