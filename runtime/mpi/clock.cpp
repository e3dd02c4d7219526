// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/clock.hpp"

#include <chrono>
#include <limits>
#include <memory>

#include "collectives/job/leak.hpp"
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

/// The messages of a comparison. They are leaked, because MPI may use them after a deadline.
struct Messages {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// The first ranks of all hosts, each of which exchanges messages with one other at a time.
class Hosts {
 public:
  Hosts(EarlyCollectives& ranks, const Comm& comm)
      : ranks_(ranks), comm_(comm), messages_(std::make_shared<Messages>()) {
    collectives::leak_until_exit(messages_);
    const Turn turn("MPI_Comm_rank");
    check(calls().rank(comm, &own_), "MPI_Comm_rank");
    check(calls().size(comm, &size_), "MPI_Comm_size");
  }
  [[nodiscard]] int own() const { return own_; }
  [[nodiscard]] int size() const { return size_; }

  void send(int to, std::int64_t time) {
    messages_->sent = time;
    Request request;
    {
      const Turn turn("MPI_Isend");
      check(calls().send(&messages_->sent, sizeof messages_->sent, to, kTag, comm_, &request),
            "MPI_Isend of the clock");
    }
    ranks_.wait(kStep, request);
  }
  std::int64_t receive(int from) {
    Request request;
    {
      const Turn turn("MPI_Irecv");
      check(calls().receive(&messages_->received, sizeof messages_->received, from, kTag, comm_,
                            &request),
            "MPI_Irecv of the clock");
    }
    ranks_.wait(kStep, request);
    return messages_->received;
  }

 private:
  EarlyCollectives& ranks_;
  const Comm comm_;
  std::shared_ptr<Messages> messages_;
  int own_ = 0;
  int size_ = 1;
};

/// Returns how far the other host's clock is ahead of this one's.
std::int64_t ask(Hosts& hosts, int other) {
  std::int64_t ahead = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t begin = now_ns();
    hosts.send(other, begin);
    const std::int64_t there = hosts.receive(other);
    const std::int64_t end = now_ns();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    ahead = there - (begin + (end - begin) / 2);
  }
  return ahead;
}

void answer(Hosts& hosts, int other) {
  for (int round = 0; round < kRounds; ++round) {
    hosts.receive(other);
    hosts.send(other, now_ns());
  }
}

/// Returns the origin on this host's clock. A host's parent in the binomial tree has the same
/// number without its lowest bit. The parent compares the clocks and sends the origin on its
/// child's clock.
std::int64_t origin_of_host(Hosts& hosts) {
  std::int64_t origin = 0;
  int children = 1;  // greatest distance of a child
  if (hosts.own() == 0) {
    origin = now_ns();
    while (children < hosts.size()) children *= 2;
  } else {
    children = hosts.own() & -hosts.own();
    const int parent = hosts.own() - children;
    answer(hosts, parent);
    origin = hosts.receive(parent);
  }
  for (int distance = children / 2; distance > 0; distance /= 2) {
    const int child = hosts.own() + distance;
    if (child < hosts.size()) hosts.send(child, origin + ask(hosts, child));
  }
  return origin;
}

}  // namespace

std::int64_t common_origin_ns(EarlyCollectives& ranks, const HostRanks& host) {
  const Comm firsts = ranks.split(kStep, host.is_first());
  std::int64_t origin = 0;
  if (host.is_first()) {
    Hosts hosts(ranks, firsts);
    origin = origin_of_host(hosts);
  }
  const auto origins = ranks.allgather(kStep, host.comm, origin);
  free_part(firsts);
  return origins.front();
}

}  // namespace tutti::mpi
