// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/textbook.hpp"

#include <array>
#include <bit>
#include <functional>

namespace apps::simulator {

namespace {

constexpr int kTag = 3;

/// The ranks among which an algorithm runs: all, or the first of each node.
struct Members {
  int index;
  int count;
  std::function<int(int)> rank_of;
};

Members everybody(const Endpoint& end) {
  return {end.rank(), end.size(), [](int index) { return index; }};
}

Members first_ranks(const Endpoint& end) {
  std::vector<int> firsts;
  int first = 0;
  for (const int ranks : end.node_sizes()) {
    firsts.push_back(first);
    first += ranks;
  }
  return {end.node(), static_cast<int>(firsts.size()),
          [firsts](int index) { return firsts[static_cast<std::size_t>(index)]; }};
}

std::span<float> part(std::span<float> values, int parts, int begin, int end) {
  const auto cut = [&](int index) {
    return values.size() * static_cast<std::size_t>(index) / static_cast<std::size_t>(parts);
  };
  return values.subspan(cut(begin), cut(end) - cut(begin));
}

/// Makes the number of members a power of two: of the first 2 * rest, the even ones hand their
/// values to the odd ones and wait. `body` runs on the members that go on, with their index among
/// these.
void folded(Endpoint& end, const Members& members, std::span<float> values,
            std::span<float> scratch, const std::function<void(int, const Members&)>& body) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(members.count)));
  const int rest = members.count - power;
  const int index = members.index;
  if (index < 2 * rest && index % 2 == 0) {
    end.send(members.rank_of(index + 1), values);
    end.receive(members.rank_of(index + 1), values);
    return;
  }
  if (index < 2 * rest) {
    end.receive(members.rank_of(index - 1), scratch);
    end.add(scratch, values);
  }
  const Members going_on{index < 2 * rest ? index / 2 : index - rest, power, [&](int other) {
                           return members.rank_of(other < rest ? 2 * other + 1 : other + rest);
                         }};
  body(going_on.index, going_on);
  if (index < 2 * rest) end.send(members.rank_of(index - 1), values);
}

void recursive_doubling(Endpoint& end, std::span<float> values, std::span<float> scratch) {
  folded(end, everybody(end), values, scratch, [&](int index, const Members& members) {
    for (int distance = 1; distance < members.count; distance *= 2) {
      const int peer = members.rank_of(index ^ distance);
      end.exchange(peer, values, peer, scratch);
      end.add(scratch, values);
    }
  });
}

/// Halves are exchanged and summed until each member has the sum of its part; then they are
/// collected in the opposite order.
void halve_and_double(Endpoint& end, const Members& members, std::span<float> values,
                      std::span<float> scratch) {
  folded(end, members, values, scratch, [&](int index, const Members& some) {
    int begin = 0;
    int last = some.count;
    for (int distance = some.count / 2; distance > 0; distance /= 2) {
      const int middle = (begin + last) / 2;
      const bool lower = index < middle;
      const int peer = some.rank_of(index ^ distance);
      const auto given =
          lower ? part(values, some.count, middle, last) : part(values, some.count, begin, middle);
      (lower ? last : begin) = middle;
      const auto kept = part(values, some.count, begin, last);
      end.exchange(peer, given, peer, scratch.first(kept.size()));
      end.add(scratch.first(kept.size()), kept);
    }
    for (int distance = 1; distance < some.count; distance *= 2) {
      const int peer = some.rank_of(index ^ distance);
      const int theirs = begin ^ distance;
      end.exchange(peer, part(values, some.count, begin, begin + distance), peer,
                   part(values, some.count, theirs, theirs + distance));
      begin &= ~distance;
    }
  });
}

void rabenseifner(Endpoint& end, std::span<float> values, std::span<float> scratch) {
  halve_and_double(end, everybody(end), values, scratch);
}

void ring(Endpoint& end, std::span<float> values, std::span<float> scratch) {
  const int size = end.size();
  const int next = (end.rank() + 1) % size;
  const int previous = (end.rank() + size - 1) % size;
  const auto share = [&](int step) {
    const int index = (end.rank() - step + 2 * size) % size;
    return part(values, size, index, index + 1);
  };
  for (int step = 0; step < size - 1; ++step) {
    const auto mine = share(step + 1);
    end.exchange(next, share(step), previous, scratch.first(mine.size()));
    end.add(scratch.first(mine.size()), mine);
  }
  for (int step = 0; step < size - 1; ++step) {
    end.exchange(next, share(step - 1), previous, share(step));
  }
}

void two_level(Endpoint& end, std::span<float> values, std::span<float> scratch) {
  const Members firsts = first_ranks(end);
  const int first = firsts.rank_of(end.node());
  const int local = end.rank() - first;
  const int ranks = end.node_sizes()[static_cast<std::size_t>(end.node())];
  int distance = 1;
  for (; distance < ranks && (local & distance) == 0; distance *= 2) {
    if (local + distance >= ranks) continue;
    end.receive(end.rank() + distance, scratch);
    end.add(scratch, values);
  }
  if (local != 0) {
    end.send(end.rank() - distance, values);
    end.receive(end.rank() - distance, values);
  } else {
    halve_and_double(end, firsts, values, scratch);
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (local + distance < ranks) end.send(end.rank() + distance, values);
  }
}

}  // namespace

Endpoint::Endpoint(tutti::simulated::Simulation& simulation, tutti::simulated::Wires& wires,
                   int rank)
    : simulation_(simulation),
      pace_(simulation.pace(rank)),
      transport_(wires.transport_of(rank)),
      rank_(rank) {}

void Endpoint::wait(Request request) {
  while (!transport_->done(request)) pace_.wait();
}

void Endpoint::send(int to, std::span<const float> values) {
  wait(transport_->send(to, kTag, std::as_bytes(values)));
}

void Endpoint::receive(int from, std::span<float> values) {
  wait(transport_->receive(from, kTag, std::as_writable_bytes(values)));
}

void Endpoint::exchange(int to, std::span<const float> out, int from, std::span<float> in) {
  const Request incoming = transport_->receive(from, kTag, std::as_writable_bytes(in));
  const Request outgoing = transport_->send(to, kTag, std::as_bytes(out));
  wait(incoming);
  wait(outgoing);
}

/// A barrier by dissemination: Hensgen, Finkel, Manber, IJPP 17(1), 1988.
void Endpoint::barrier() {
  for (int distance = 1; distance < size(); distance *= 2) {
    exchange((rank_ + distance) % size(), {}, (rank_ + size() - distance) % size(), {});
  }
}

void Endpoint::add(std::span<const float> values, std::span<float> sums) {
  constexpr std::size_t kStreams = 3;  // two are read, one is written
  if (!pace_.work(kStreams * values.size_bytes())) return;
  for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

std::span<const Textbook> textbook_algorithms() {
  static constexpr std::array kAll{
      Textbook{"recursive-doubling", recursive_doubling},
      Textbook{"rabenseifner", rabenseifner},
      Textbook{"ring", ring},
      Textbook{"two-level", two_level},
  };
  return kAll;
}

}  // namespace apps::simulator
