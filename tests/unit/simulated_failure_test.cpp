// SPDX-License-Identifier: Apache-2.0
// The rank that errors name when one is lost: on simulated clusters, where no rank is late by
// chance and deadlines pass in their order.
#include <algorithm>
#include <bit>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include "runtime/simulated/cluster.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using simulated::Cluster;
using simulated::kSecond;
using simulated::Network;
using simulated::Time;

namespace {

constexpr double kDeadline = 5;

Settings with_the_deadline() {
  Settings settings;
  settings.log = LogLevel::quiet;
  settings.timeout = std::chrono::duration<double>(kDeadline);
  return settings;
}

/// The errors and times of the ranks of a job that has lost one.
struct Loss {
  test::Outcomes outcomes;
  double last_seconds = 0;  ///< time from the call to the last rank's error
  simulated::Traffic traffic;
};

using Body = std::function<void(Communicator&)>;

void barrier(Communicator& comm) { comm.barrier(); }

void sum(Communicator& comm) {
  Tensor data = Tensor::ones({20'000});
  comm.allreduce(data);
}

/// Makes the rank arrive so much later. Ranks that wait look now and then, as they do outside of a
/// simulation: at most a second of the time between two looks counts.
void be_late(Cluster& cluster, double seconds) {
  simulated::Simulation& simulation = cluster.simulation();
  const Time end = simulation.now() + static_cast<Time>(seconds * kSecond);
  while (simulation.now() < end) {
    simulation.sleep_until(std::min<Time>(end, simulation.now() + kSecond / 2));
    for (int rank = 0; rank < simulation.size(); ++rank) simulation.poke(rank);
  }
}

/// Stops the rank between a barrier and this call. Rank r makes the call delays[r] seconds late, if
/// given.
Loss lose_rank(const std::vector<int>& node_sizes, int lost, const Body& call = barrier,
               const std::vector<double>& delays = {}, const std::string& algorithms = {}) {
  Settings settings = with_the_deadline();
  settings.algorithms = algorithms;
  Cluster cluster(Network{}, node_sizes, settings);
  simulated::Simulation& simulation = cluster.simulation();
  Loss loss;
  loss.outcomes = cluster.run([&](Communicator& comm) {
    comm.barrier();
    simulation.sleep_until(simulation.now() + kSecond);  // all ranks have ended the barrier
    if (comm.rank() == lost) {
      cluster.wires().cut({lost});
      simulation.stop_here();
      return;
    }
    const Time begin = simulation.now();
    const auto rank = static_cast<std::size_t>(comm.rank());
    if (rank < delays.size()) be_late(cluster, delays[rank]);
    try {
      call(comm);
    } catch (const Error&) {
      const auto took = static_cast<double>(simulation.now() - begin);
      loss.last_seconds = std::max(loss.last_seconds, took / kSecond);
      loss.traffic = cluster.wires().traffic();
      throw;
    }
  });
  return loss;
}

/// True if the errors of all others say that they wait for that rank.
bool is_named(int lost, test::Outcomes outcomes, const std::string& more = {}) {
  outcomes.erase(outcomes.begin() + lost);
  const std::string words = " for rank " + std::to_string(lost) + " (host ";
  const bool all_say = test::all_say(outcomes, ErrorCode::timeout, words) &&
                       test::all_say(outcomes, ErrorCode::timeout, more);
  if (!all_say && outcomes[0]) MESSAGE(std::string(outcomes[0]->what()));
  return all_say;
}

/// Checks that all other ranks name the lost one, in time.
void check_that_lost_rank_is_named(int nodes, int per_node, int lost) {
  CAPTURE(nodes);
  CAPTURE(lost);
  const Loss loss = lose_rank(std::vector<int>(static_cast<std::size_t>(nodes), per_node), lost);
  const std::string name =
      "rank " + std::to_string(lost) + " (host node" + std::to_string(lost / per_node) + ")";
  int silent = 0;
  for (int rank = 0; rank < nodes * per_node; ++rank) {
    const auto& outcome = loss.outcomes[static_cast<std::size_t>(rank)];
    if (rank == lost) continue;
    const bool named = outcome && outcome->code() == ErrorCode::timeout &&
                       std::string(outcome->what()).find(name) != std::string::npos;
    if (!named && ++silent < 3)
      MESSAGE(rank, ": ", std::string(outcome ? outcome->what() : "nothing"));
  }
  CHECK(silent == 0);
  CHECK(loss.last_seconds >= kDeadline);
  CHECK(loss.last_seconds <= kDeadline + 2);
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(nodes - 1)));
  CHECK(loss.traffic.most_notices_of_node > 0);
  // A node tells it to two nodes, asks the one that it waits for twice, and answers those that ask
  // it.
  CHECK(loss.traffic.most_notices_of_node <= 6 * rounds);
}

}  // namespace

TEST_CASE("a lost node of very many is named on every rank soon after the deadline") {
  check_that_lost_rank_is_named(test::kFewRounds ? 64 : 1024, 1, 37);
}

TEST_CASE("so it is in whichever block of nodes, where they are no power of two") {
  for (const int lost : {0, 37, 63, 64, 70, 96, 98}) check_that_lost_rank_is_named(100, 1, lost);
}

TEST_CASE("a lost rank of a node of many is named on all, with six messages per doubling") {
  for (const int nodes : {9, 16}) {
    for (const int lost : {10, 11}) check_that_lost_rank_is_named(nodes, 2, lost);
  }
}

TEST_CASE("a rank that waits itself is not blamed: the one who is missing is") {
  constexpr int kMissing = 1;
  const Loss loss = lose_rank({2, 2}, kMissing);
  int reporters = 0;
  for (const int rank : {0, 2, 3}) {
    CAPTURE(rank);
    const auto& outcome = loss.outcomes[static_cast<std::size_t>(rank)];
    REQUIRE(outcome);
    CHECK(std::string(outcome->what()).find(" for rank 1 ") != std::string::npos);
    reporters += outcome->reporter() ? 1 : 0;
  }
  CHECK(reporters == 1);
}

TEST_CASE("who waits for the missing rank names it, though another has waited longer") {
  // Rank 0 waits for rank 1, which comes long after it, and waits for rank 2 of its node.
  for (const auto& call : {barrier, sum}) {
    const Loss loss = lose_rank({1, 2}, 2, call, {0, 3});
    CHECK(is_named(2, loss.outcomes, "another rank can wait no longer"));
    CHECK(loss.last_seconds <= kDeadline + 2);
  }
}

TEST_CASE("the missing rank is named, in whichever order the others come") {
  std::mt19937 engine(5);
  const std::vector<std::vector<int>> layouts{{1, 1},
                                              {3, 3},
                                              {2, 1, 3},
                                              {1, 1, 1, 1, 1, 1, 1, 1},
                                              {2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
                                              std::vector<int>(16, 1),
                                              std::vector<int>(33, 1)};
  for (int trial = 0; trial < (test::kFewRounds ? 40 : 200); ++trial) {
    CAPTURE(trial);
    const auto& layout = layouts[engine() % layouts.size()];
    const int size = test::size_of_job(layout);
    CAPTURE(size);
    const int lost = static_cast<int>(engine() % static_cast<unsigned>(size));
    std::uniform_real_distribution<double> delay(0, kDeadline * 0.9);
    std::vector<double> delays(static_cast<std::size_t>(size));
    for (double& each : delays) each = engine() % 2 == 0 ? 0 : delay(engine);
    const bool is_power = std::has_single_bit(layout.size()) && layout.size() > 4;
    const char* const algorithms = is_power && trial % 2 == 0 ? "halved=1M" : "";
    const Loss loss = lose_rank(layout, lost, trial % 3 == 0 ? barrier : sum, delays, algorithms);
    CHECK(is_named(lost, loss.outcomes));
    CHECK(loss.last_seconds <= 1.9 * kDeadline + 2);
  }
}

TEST_CASE("a node that is lost in the middle of a call is named, also by those in the next one") {
  constexpr int kNodes = 20;
  constexpr int kLost = 13;
  constexpr std::int64_t kCount = 1'000'000;
  const auto large_sum = [](Communicator& comm) {
    Tensor data = Tensor::ones({kCount});
    comm.allreduce(data);
  };
  const auto broadcast = [](Communicator& comm) {
    Tensor data = Tensor::ones({kCount});
    comm.broadcast(data, 0);
  };
  const auto gather = [](Communicator& comm) {
    const Tensor data = Tensor::ones({kCount});
    Tensor all = Tensor::zeros({comm.rank() == 0 ? kCount * kNodes : 0});
    comm.gather(data, all, 0);
  };
  for (const Body& call : {Body(large_sum), Body(broadcast), Body(gather)}) {
    Cluster cluster(Network{}, std::vector<int>(kNodes, 1), with_the_deadline());
    const auto outcomes = cluster.run([&](Communicator& comm) {
      comm.barrier();
      simulated::Simulation& simulation = cluster.simulation();
      if (comm.rank() == 0) {
        const Time in_the_middle = simulation.now() + kSecond / 5000;
        simulation.at_time(in_the_middle, [&] { cluster.wires().cut({kLost}); });
      }
      call(comm);
      comm.barrier();
    });
    CHECK(is_named(kLost, outcomes));
  }
}

TEST_CASE("a node that comes within a second after the deadline has missed nothing") {
  const std::vector<std::vector<int>> layouts{{1, 1}, {3, 3}, {2, 1, 3}, std::vector<int>(16, 1)};
  for (const auto& layout : layouts) {
    CAPTURE(layout.size());
    Cluster cluster(Network{}, layout, with_the_deadline());
    int right = 0;
    const auto outcomes = cluster.run([&](Communicator& comm) {
      comm.barrier();
      for (const int late : {0, 1}) {
        const int node = comm.node();
        if (node == late) be_late(cluster, kDeadline + 0.6);
        for (int turn = 0; turn < 3; ++turn) {
          Tensor data = Tensor::ones({20'000});
          comm.allreduce(data);
          if (data.value(19'999) == comm.size()) ++right;
          if (node == late) be_late(cluster, kDeadline / 2);
        }
      }
    });
    CHECK(test::all_returned(outcomes));
    CHECK(right == 6 * test::size_of_job(layout));
  }
}
