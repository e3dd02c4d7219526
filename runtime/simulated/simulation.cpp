// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulated/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::simulated {

namespace {

// Where nothing will happen any more, ranks that wait are shown that time passes, in steps that are
// shorter than what the deadlines of ranks differ by.
constexpr Time kIdle = kSecond / 100;

}  // namespace

Time in_picoseconds(double seconds) {
  return static_cast<Time>(std::llround(seconds * static_cast<double>(kSecond)));
}

class Simulation::RankPace final : public collectives::Pace {
 public:
  RankPace(Simulation& simulation, double rate) : simulation_(simulation), rate_(rate) {}

  [[nodiscard]] Clock::time_point now() const override {
    constexpr Time kPerNanosecond = 1000;
    return Clock::time_point(std::chrono::nanoseconds(simulation_.now() / kPerNanosecond));
  }
  void wait() override { simulation_.wait(); }
  void signalled() override { simulation_.signalled(); }
  bool work(std::size_t bytes) override {
    simulation_.spend(in_picoseconds(static_cast<double>(bytes) / rate_), Spent::work);
    return simulation_.has_data();
  }

 private:
  Simulation& simulation_;
  double rate_;
};

Simulation::Simulation(const Network& network, const std::vector<int>& node_sizes, bool data)
    : network_(network), node_sizes_(node_sizes), data_(data), stacks_([&] {
        int size = 0;
        for (const int ranks : node_sizes) size += ranks;
        return size;
      }()) {
  cores_.resize(network.cores);
  for (std::size_t node = 0; node < node_sizes.size(); ++node) {
    first_of_node_.push_back(size());
    const double share = network.node_rate / node_sizes[node];
    for (int i = 0; i < node_sizes[node]; ++i) {
      Rank& rank = ranks_.emplace_back();
      rank.node = static_cast<int>(node);
      rank.pace = std::make_unique<RankPace>(*this, std::min(network.core_rate, share));
    }
  }
}

Simulation::~Simulation() = default;

collectives::Pace& Simulation::pace(int rank) { return *ranks_[at(rank)].pace; }

void Simulation::run(const std::function<void(int)>& body) {
  unfinished_ = size();
  for (int rank = 0; rank < size(); ++rank) {
    Rank& one = ranks_[at(rank)];
    one.waiting = one.poked = one.stopped = false;
    one.signalled = one.hop = one.cause = -1;
    one.fibre = std::make_unique<Fibre>(stacks_.stack(rank), [&body, rank] { body(rank); });
    push({now_, 0, rank, true, 0});
  }
  while (unfinished_ > 0) {
    if (events_.empty()) {
      const bool all_stopped = std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
        return !rank.fibre->ended() && !rank.stopped;
      });
      if (!all_stopped) now_ += kIdle;
      wake_all(all_stopped);
      continue;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    happen(event);
  }
  while (!events_.empty()) {  // messages that nobody awaits any more
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    if (event.rank < 0) happen(event);
  }
}

void Simulation::wake_all(bool stopped_ones) {
  for (int rank = 0; rank < size(); ++rank) {
    if (!ranks_[at(rank)].fibre->ended() && ranks_[at(rank)].stopped == stopped_ones) {
      push({now_, 0, rank, true, 0});
      ranks_[at(rank)].waiting = false;
    }
  }
}

void Simulation::happen(const Event& event) {
  if (event.rank >= 0) {
    if (event.resumes) return resume(event.rank);
    return poke(event.rank, event.hop);
  }
  const auto action = std::move(actions_[event.action]);
  free_actions_.push_back(event.action);
  action();
}

void Simulation::push(Event event) {
  event.number = next_number_++;
  events_.push(event);
}

void Simulation::resume(int rank) {
  current_ = rank;
  ranks_[at(rank)].fibre->resume();
  current_ = -1;
  if (ranks_[at(rank)].fibre->ended()) --unfinished_;
}

/// Where nothing happens meanwhile, the clock alone moves.
void Simulation::pass(Time time) {
  if (time <= 0) return;
  if (events_.empty() || events_.top().time > now_ + time) {
    now_ += time;
    return;
  }
  push({now_ + time, 0, current_, true, 0});
  ranks_[at(current_)].fibre->leave();
}

void Simulation::sleep_until(Time time) { pass(time - now_); }

void Simulation::spend(Time time, Spent on) {
  if (time <= 0) return;
  take_core(time);
  const Time begin = now_;
  pass(time);
  Rank& own = ranks_[at(current_)];
  own.hop = add_hop({own.hop, on, current_, begin, now_});
}

/// Of those that ranks share, the one that is free first, in the order in which they ask.
void Simulation::take_core(Time time) {
  if (cores_.empty()) return;
  Time& core = *std::min_element(cores_.begin(), cores_.end());
  const Time begin = std::max(core, now_);
  core = begin + time;
  if (begin == now_) return;
  Rank& own = ranks_[at(current_)];
  own.hop = add_hop({own.hop, Spent::core, current_, now_, begin});
  pass(begin - now_);
}

void Simulation::at_time(Time time, std::function<void()> action) {
  std::size_t place = actions_.size();
  if (free_actions_.empty()) {
    actions_.push_back(std::move(action));
  } else {
    place = free_actions_.back();
    free_actions_.pop_back();
    actions_[place] = std::move(action);
  }
  push({std::max(time, now_), 0, -1, false, place});
}

void Simulation::poke(int rank, std::int64_t hop) {
  Rank& one = ranks_[at(rank)];
  if (!one.fibre || one.fibre->ended() || one.stopped) return;
  if (!one.waiting) {
    one.poked = true;
    return;
  }
  one.waiting = false;
  one.cause = hop;
  push({now_, 0, rank, true, 0});
}

void Simulation::wait() {
  Rank& own = ranks_[at(current_)];
  if (!std::exchange(own.poked, false)) {
    own.waiting = true;
    own.cause = -1;
    own.fibre->leave();
    own.waiting = false;
    if (own.cause >= 0) own.hop = own.cause;
    take_turn();
  }
  own.poked = false;
}

/// More ranks than cores look in turn, and the turn of one that is waited for has not come.
void Simulation::take_turn() {
  const auto cores = static_cast<double>(cores_.size());
  if (cores_.empty() || static_cast<double>(size()) <= cores) return;
  const Time until =
      now_ + in_picoseconds(network_.turn * (static_cast<double>(size()) / cores - 1));
  Rank& own = ranks_[at(current_)];
  own.hop = add_hop({own.hop, Spent::turn, current_, now_, until});
  sleep_until(until);
}

void Simulation::record(bool records) {
  records_ = records;
  hops_.clear();
  for (Rank& rank : ranks_) rank.hop = rank.cause = -1;
}

/// What takes no time is left out, and so is what led to what is being left out.
std::int64_t Simulation::add_hop(const Hop& hop) {
  if (!records_) return -1;
  if (hop.end == hop.begin) return hop.previous;
  hops_.push_back(hop);
  return static_cast<std::int64_t>(hops_.size()) - 1;
}

void Simulation::stop_here() {
  Rank& own = ranks_[at(current_)];
  own.stopped = true;
  own.fibre->leave();
}

/// Those who wait see it after a while; those who do not see the memory when they look.
void Simulation::signalled() {
  const Rank& own = ranks_[at(current_)];
  const Time seen = now_ + in_picoseconds(network_.signal);
  const int first = first_of_node_[at(own.node)];
  for (int rank = first; rank < first + node_sizes_[at(own.node)]; ++rank) {
    Rank& other = ranks_[at(rank)];
    if (rank == current_ || other.signalled == seen) continue;
    other.signalled = seen;
    const std::int64_t hop = add_hop({own.hop, Spent::signal, rank, now_, seen});
    push({seen, 0, rank, false, 0, hop});
  }
}

}  // namespace tutti::simulated
