// SPDX-License-Identifier: Apache-2.0
#include "support/link_speed.hpp"

#include <algorithm>
#include <chrono>
#include <sched.h>
#include <thread>
#include <vector>

#include "apps/benchmark/backends.hpp"

namespace apps {

namespace {

using benchmark::check_mpi;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kTag = 7;
constexpr std::size_t kSmall = 8;
constexpr std::size_t kOneSegment = 1000;  // bytes in one segment of TCP
constexpr std::size_t kPiece = 32768;
constexpr std::size_t kLargest = 1 << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// The end of rank 0 or of rank 1.
class End {
 public:
  End(MPI_Comm comm, int rank)
      : comm_(comm), peer_(1 - rank), first_(rank == 0), out_(kLargest), in_(kLargest) {}

  [[nodiscard]] bool is_first() const { return first_; }

  MPI_Request send(std::size_t bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Isend(out_.data(), static_cast<int>(bytes), MPI_BYTE, peer_, kTag, comm_, &request),
        "MPI_Isend");
    return request;
  }
  MPI_Request receive(std::size_t bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Irecv(in_.data(), static_cast<int>(bytes), MPI_BYTE, peer_, kTag, comm_, &request),
        "MPI_Irecv");
    return request;
  }
  static bool done(MPI_Request& request) {
    int flag = 0;
    check_mpi(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }
  /// Waits as the library does: polls for a while, then leaves the core to others between two
  /// polls. Returns the time of the poll that found the request done.
  static double wait(MPI_Request& request) {
    constexpr auto kSpin = microseconds(20);
    const auto begin = Clock::now();
    for (;;) {
      const auto poll = Clock::now();
      if (done(request)) return seconds_since(poll);
      if (poll - begin > kSpin) sched_yield();
    }
  }
  void give(std::size_t bytes) {
    MPI_Request request = send(bytes);
    wait(request);
  }
  double take(std::size_t bytes) {
    MPI_Request request = receive(bytes);
    return wait(request);
  }
  /// Sends a message there and back; returns the first end's time.
  double round_trip(std::size_t bytes) {
    const auto begin = Clock::now();
    if (first_) {
      give(bytes);
      take(bytes);
    } else {
      take(bytes);
      give(bytes);
    }
    return seconds_since(begin);
  }
  /// Sends messages in both directions at once, with some of them under way. Returns the seconds of
  /// a message, the median over groups of them: a rank that was kept from its core for a while does
  /// not count.
  double stream(std::size_t bytes, std::size_t messages) {
    constexpr std::size_t kUnderWay = 16;
    std::vector<MPI_Request> requests(2 * kUnderWay, MPI_REQUEST_NULL);
    std::vector<double> times;
    round_trip(kSmall);
    auto begin = Clock::now();
    for (std::size_t i = 0; i < messages; ++i) {
      const std::size_t place = 2 * (i % kUnderWay);
      for (const std::size_t which : {place, place + 1}) {
        if (requests[which] != MPI_REQUEST_NULL) wait(requests[which]);
      }
      if (place == 0 && i >= 2 * kUnderWay) times.push_back(seconds_since(begin) / kUnderWay);
      if (place == 0) begin = Clock::now();
      requests[place] = receive(bytes);
      requests[place + 1] = send(bytes);
    }
    for (MPI_Request& request : requests) {
      if (request != MPI_REQUEST_NULL) wait(request);
    }
    return median(times);
  }

 private:
  MPI_Comm comm_;
  int peer_;
  bool first_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

struct Small {
  double half = 0;  ///< half of a round trip
  double send = 0;
  double receive = 0;
};

/// Measures round trips with pauses between them, in which a link that lets bursts through comes to
/// rest again, and the core does not: between two calls a program computes.
Small small_messages(End& end) {
  constexpr int kTrips = 500;
  constexpr auto kPause = microseconds(300);
  std::vector<double> trips;
  std::vector<double> sends;
  std::vector<double> receives;
  for (int trip = 0; trip < kTrips; ++trip) {
    auto begin = Clock::now();
    for (const auto pause = begin; end.is_first() && begin - pause < kPause;) begin = Clock::now();
    if (!end.is_first()) receives.push_back(end.take(kSmall));
    const auto send_begin = Clock::now();
    MPI_Request sent = end.send(kSmall);
    sends.push_back(seconds_since(send_begin));
    End::wait(sent);
    if (end.is_first()) receives.push_back(end.take(kSmall));
    trips.push_back(seconds_since(begin));
  }
  return {median(trips) / 2, median(sends), median(receives)};
}

/// The median of several series of round trips, one of which differs from the next by a fifth.
Small small_messages_of_several(End& end) {
  constexpr int kSeries = 7;
  std::vector<Small> all;
  for (int series = 0; series < kSeries; ++series) all.push_back(small_messages(end));
  const auto middle = [&](double Small::*member) {
    std::vector<double> values;
    for (const Small& one : all) values.push_back(one.*member);
    return median(values);
  };
  return {middle(&Small::half), middle(&Small::send), middle(&Small::receive)};
}

/// The largest message whose sender need not wait for the receiver.
std::size_t eager_limit(End& end) {
  constexpr auto kPatience = milliseconds(20);
  constexpr std::size_t kFinest = 16;
  std::size_t eager = 0;
  for (std::size_t step = kLargest / 2; step >= kFinest; step /= 2) {
    if (!end.is_first()) {
      std::this_thread::sleep_for(2 * kPatience);
      end.take(kLargest);
      end.give(kSmall);
      continue;
    }
    MPI_Request request = end.send(eager + step);
    bool is_eager = false;
    const auto begin = Clock::now();
    while (!is_eager && Clock::now() - begin < kPatience) is_eager = End::done(request);
    if (is_eager) eager += step;
    End::wait(request);
    end.take(kSmall);
  }
  return eager;
}

/// The time of round trips one right after the other, in which the link limits them: the median
/// over groups.
double saturated_trip(End& end, std::size_t bytes) {
  constexpr int kTrips = 4000;
  constexpr int kOfGroup = 100;
  for (int trip = 0; trip < kTrips; ++trip) end.round_trip(bytes);
  std::vector<double> times;
  for (int group = 0; group < kTrips / kOfGroup; ++group) {
    const auto begin = Clock::now();
    for (int trip = 0; trip < kOfGroup; ++trip) end.round_trip(bytes);
    times.push_back(seconds_since(begin) / kOfGroup);
  }
  return median(times);
}

/// The time of messages and their answer on a link that was at rest.
double from_rest(End& end, std::size_t bytes, std::size_t messages) {
  constexpr int kTimes = 11;
  std::vector<double> times;
  for (int time = 0; time < kTimes; ++time) {
    std::this_thread::sleep_for(milliseconds(20));
    end.round_trip(kSmall);
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < messages; ++i)
      end.is_first() ? end.give(bytes) : (void)end.take(bytes);
    end.is_first() ? (void)end.take(kSmall) : end.give(kSmall);
    times.push_back(seconds_since(begin));
  }
  return median(times);
}

/// The time in which the first end looks at a message that has not come, and with `gives_on` gives
/// its core away.
double seconds_of_look(End& end, bool gives_on) {
  constexpr int kLooks = 3000;
  if (!end.is_first()) {
    end.take(kSmall);
    end.give(kSmall);
    return 0;
  }
  MPI_Request request = end.receive(kSmall);
  const auto begin = Clock::now();
  for (int look = 0; look < kLooks; ++look) {
    End::done(request);
    if (gives_on) sched_yield();
  }
  const double seconds = seconds_since(begin) / kLooks;
  end.give(kSmall);
  End::wait(request);
  return seconds;
}

LinkSpeed measure_ends(End& end) {
  LinkSpeed link;
  const Small small = small_messages_of_several(end);
  link.overhead = small.send;
  link.receive_overhead = small.receive;
  link.latency = std::max(small.half - small.send - small.receive, 0.0);
  link.poll = seconds_of_look(end, false);
  link.eager_bytes = eager_limit(end);
  constexpr std::size_t kMessages = 256;
  link.port_rate = static_cast<double>(kPiece) / end.stream(kPiece, kMessages);
  // Where round trips take longer than they would one by one, they wait for the link.
  const double trip = saturated_trip(end, kOneSegment);
  const double header = trip * link.port_rate - static_cast<double>(kOneSegment);
  const bool is_saturated = trip > 1.2 * 2 * small.half && header < kOneSegment;
  constexpr double kOfTcp = 66;
  link.header_bytes = is_saturated ? std::max(header, 0.0) : kOfTcp;
  constexpr std::size_t kOfBurst = 8;
  const double whole = from_rest(end, kPiece, kOfBurst);
  link.burst_bytes = std::max(
      0.0, static_cast<double>(kPiece * kOfBurst) - (whole - 2 * small.half) * link.port_rate);
  return link;
}

/// Waits until all ranks have called this: asleep, or polling as the library does.
void meet(MPI_Comm comm, bool asleep) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  if (!asleep) {
    End::wait(request);
    return;
  }
  while (!End::done(request)) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace

LinkSpeed measure_link(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  LinkSpeed link;
  const bool takes_part = rank < 2;
  End end(comm, takes_part ? rank : 0);
  meet(comm, true);
  if (takes_part) link = measure_ends(end);
  meet(comm, !takes_part);
  if (takes_part) link.round = seconds_of_look(end, true);
  meet(comm, false);
  return link;
}

}  // namespace apps
