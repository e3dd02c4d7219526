// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/clock.hpp"

#include <chrono>
#include <limits>
#include <memory>

#include "collectives/leak.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {

constexpr int kRounds = 10;
constexpr int kTag = 101;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr const char* kStep = "compare the clocks of their hosts";

/// The messages of a comparison. They are left to MPI where a deadline passes.
struct Messages {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

void send(EarlyCollectives& ranks, int to_rank, Messages& messages) {
  Request request;
  check(calls().send(&messages.sent, sizeof messages.sent, to_rank, kTag, ranks.comm(), &request),
        "MPI_Isend of the clock");
  ranks.wait(kStep, request);
}

void receive(EarlyCollectives& ranks, int from_rank, Messages& messages) {
  Request request;
  check(calls().receive(&messages.received, sizeof messages.received, from_rank, kTag, ranks.comm(),
                        &request),
        "MPI_Irecv of the clock");
  ranks.wait(kStep, request);
}

/// How far the other rank's clock is ahead of this one's.
std::int64_t ask(EarlyCollectives& ranks, int rank, Messages& messages) {
  std::int64_t ahead = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t begin = now_ns();
    send(ranks, rank, messages);
    receive(ranks, rank, messages);
    const std::int64_t end = now_ns();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    ahead = messages.received - (begin + (end - begin) / 2);
  }
  return ahead;
}

void answer(EarlyCollectives& ranks, Messages& messages) {
  for (int round = 0; round < kRounds; ++round) {
    receive(ranks, 0, messages);
    messages.sent = now_ns();
    send(ranks, 0, messages);
  }
}

}  // namespace

std::int64_t common_origin_ns(EarlyCollectives& ranks, const std::vector<RankInfo>& infos) {
  const int rank = ranks.rank();
  auto messages = std::make_shared<Messages>();
  collectives::leak_until_exit(messages);
  std::vector<std::int64_t> origins(infos.size());  // one per host, at its first rank
  if (rank == 0) {
    for (int other = 1; other < ranks.size(); ++other) {
      const bool is_first = infos[other].host_first == other;
      if (is_first) origins[other] = ask(ranks, other, *messages);
    }
    const std::int64_t now = now_ns();
    for (std::int64_t& origin : origins) origin += now;
  } else if (infos[rank].host_first == rank) {
    answer(ranks, *messages);
  }
  ranks.broadcast(kStep, 0, std::span(origins));
  return origins[infos[rank].host_first];
}

}  // namespace tutti::mpi
