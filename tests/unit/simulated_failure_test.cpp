// SPDX-License-Identifier: Apache-2.0
// Who names a rank that does not come: on simulated clusters, where no rank is late by chance and
// deadlines pass in their order.
#include <algorithm>
#include <bit>
#include <chrono>
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "tutti/error.hpp"

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

/// What the ranks of a job that has lost one say, and when.
struct Loss {
  test::Outcomes outcomes;
  double last_seconds = 0;  ///< from the call to the last rank's error
  simulated::Traffic traffic;
};

/// The rank stops between two barriers.
Loss lose_rank(const std::vector<int>& node_sizes, int lost) {
  Cluster cluster(Network{}, node_sizes, with_the_deadline());
  Loss loss;
  loss.outcomes = cluster.run([&](Communicator& comm) {
    comm.barrier();
    cluster.simulation().sleep_until(cluster.simulation().now() + kSecond);  // all have ended it
    if (comm.rank() == lost) {
      cluster.wires().cut({lost});
      cluster.simulation().stop_here();
      return;
    }
    const Time begin = cluster.simulation().now();
    try {
      comm.barrier();
    } catch (const Error&) {
      const auto took = static_cast<double>(cluster.simulation().now() - begin);
      loss.last_seconds = std::max(loss.last_seconds, took / kSecond);
      loss.traffic = cluster.wires().traffic();
      throw;
    }
  });
  return loss;
}

/// All other ranks name the lost one, in time.
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
  CHECK(loss.traffic.most_notices_of_node <= 2 * rounds);
}

}  // namespace

TEST_CASE("a lost node of very many is named on every rank soon after the deadline") {
  check_that_lost_rank_is_named(test::kFewRounds ? 64 : 1024, 1, 37);
}

TEST_CASE("so it is in whichever block of nodes, where they are no power of two") {
  for (const int lost : {0, 37, 63, 64, 70, 96, 98}) check_that_lost_rank_is_named(100, 1, lost);
}

TEST_CASE("a lost rank of a node of many is named on all, with two messages per doubling") {
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
