// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulated/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::simulated {

namespace {

// If no event is left, waiting ranks see time pass in steps of this size, which is shorter than the
// differences between ranks' deadlines.
constexpr Time kIdle = kSecond / 100;

// Limits on how long a rank that is alone in its node polls, as in collectives/wait/wait.cpp,
// before it passes its core on.
constexpr int kMessagePolls = 8;
constexpr Time kSpin = kSecond / 50'000;

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
    one.waiting = one.poked = one.stopped = one.due = false;
    one.signalled = one.hop = one.cause = -1;
    one.fibre = std::make_unique<Fibre>(stacks_.stack(rank), [&body, rank] { body(rank); });
    if (!shares_core()) push({now_, 0, rank, true, 0});
  }
  start_cores();
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
    Rank& one = ranks_[at(rank)];
    if (one.fibre->ended() || one.stopped != stopped_ones) continue;
    if (shares_core() && !stopped_ones) {
      poke(rank);
      continue;
    }
    push({now_, 0, rank, true, 0});
    one.waiting = false;
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
  if (!ranks_[at(rank)].fibre->ended()) return;
  --unfinished_;
  leave_core(rank);
}

/// Lets time pass for the current rank. If there are no events meanwhile, only the clock advances.
void Simulation::pass(Time time) {
  if (time <= 0) return;
  if (events_.empty() || events_.top().time > now_ + time) {
    now_ += time;
    return;
  }
  push({now_ + time, 0, current_, true, 0});
  ranks_[at(current_)].fibre->leave();
}

/// Sleeps until a time. On a shared core the rank polls meanwhile, and a message that arrives is
/// seen by its next wait.
void Simulation::sleep_until(Time time) {
  if (!shares_core()) return pass(time - now_);
  const int rank = current_;
  at_time(time, [this, rank] { poke(rank); });
  while (now_ < time) wait();
  ranks_[at(rank)].poked = true;
}

void Simulation::spend(Time time, Spent on) {
  if (time <= 0) return;
  const Time begin = now_;
  pass(time);
  Rank& own = ranks_[at(current_)];
  own.hop = add_hop({own.hop, on, current_, begin, now_});
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
  if (shares_core()) return become_due(rank, hop);
  one.waiting = false;
  one.cause = hop;
  push({now_, 0, rank, true, 0});
}

void Simulation::wait() {
  Rank& own = ranks_[at(current_)];
  if (!std::exchange(own.poked, false)) {
    own.waiting = true;
    own.cause = -1;
    if (shares_core()) wait_for_turn(own);
    own.fibre->leave();
    own.waiting = false;
    if (own.cause >= 0) own.hop = own.cause;
  }
  own.poked = false;
  own.looks = 0;
}

// --- cores that ranks share ---------------------------------------------------------------------
//
//   rank 0  works | polls for a while, and passes the core on
//   rank 2                                                   polls |                | polls | works
//   rank 4                                                          polls |
//                                                                 ^ rank 2's message arrives

/// Starts with work for all ranks, which take their first turns one after the other.
void Simulation::start_cores() {
  for (Core& core : cores_) {
    core.turns.clear();
    core.has_owner = false;
  }
  if (!shares_core()) return;
  for (int rank = 0; rank < size(); ++rank) {
    ranks_[at(rank)].waiting = ranks_[at(rank)].due = true;
    ranks_[at(rank)].due_since = now_;
    core_of(rank).turns.push_back(rank);
  }
  for (Core& core : cores_) {
    core.since = now_;
    plan_next(core);
  }
}

/// Plans an action for a core, to be dropped if something else happens to the core before.
void Simulation::plan(Core& core, Time time, std::function<void()> action) {
  const std::uint64_t epoch = ++core.epoch;
  at_time(time, [&core, epoch, action = std::move(action)] {
    if (core.epoch == epoch) action();
  });
}

/// Lets the current rank keep its core while it polls, then passes the core on.
void Simulation::wait_for_turn(Rank& own) {
  Core& core = cores_[at(own.node) % cores_.size()];
  if (core.turns.size() == 1) return;
  const int looks = kMessagePolls * std::max(own.looks, 1);
  plan(core, now_ + kSpin + looks * in_picoseconds(network_.poll),
       [this, &core] { give_on(core); });
}

/// A waiting rank has work to do: it continues at once if it has the core, otherwise in its turn.
void Simulation::become_due(int rank, std::int64_t hop) {
  Rank& one = ranks_[at(rank)];
  if (one.due) return;
  one.due = true;
  one.due_since = now_;
  one.cause = hop;
  Core& core = core_of(rank);
  if (!core.has_owner) return plan_next(core);
  if (core.turns.front() == rank) hand_to(core, 0);
}

void Simulation::give_on(Core& core) {
  std::rotate(core.turns.begin(), core.turns.begin() + 1, core.turns.end());
  core.has_owner = false;
  core.since = now_;
  plan_next(core);
}

/// Plans the next turn: since core.since the ranks poll one after the other, and the first one
/// whose poll succeeds gets the core.
void Simulation::plan_next(Core& core) {
  const Time turn = in_picoseconds(network_.turn);
  const Time round = turn * static_cast<Time>(core.turns.size());
  std::size_t next = core.turns.size();
  Time soonest = 0;
  for (std::size_t place = 0; place < core.turns.size(); ++place) {
    if (!ranks_[at(core.turns[place])].due) continue;
    const Time first = core.since + static_cast<Time>(place) * turn;
    const Time late = std::max(now_ - first, Time{0});
    const Time looks = round > 0 ? first + (late + round - 1) / round * round : now_;
    if (next < core.turns.size() && looks >= soonest) continue;
    next = place;
    soonest = looks;
  }
  if (next == core.turns.size()) return;
  plan(core, soonest, [this, &core, next] { hand_to(core, next); });
}

void Simulation::hand_to(Core& core, std::size_t place) {
  std::rotate(core.turns.begin(), core.turns.begin() + static_cast<std::ptrdiff_t>(place),
              core.turns.end());
  core.has_owner = true;
  ++core.epoch;
  Rank& one = ranks_[at(core.turns.front())];
  one.waiting = one.due = false;
  const std::int64_t previous = one.cause >= 0 ? one.cause : one.hop;
  one.cause = add_hop({previous, Spent::turn, core.turns.front(), one.due_since, now_});
  push({now_, 0, core.turns.front(), true, 0});
}

/// Removes a rank that has ended or stopped from its core's turns.
void Simulation::leave_core(int rank) {
  if (!shares_core()) return;
  Core& core = core_of(rank);
  const auto found = std::find(core.turns.begin(), core.turns.end(), rank);
  if (found == core.turns.end()) return;
  if (found == core.turns.begin()) core.has_owner = false;
  core.turns.erase(found);
  if (core.has_owner) return;
  core.since = now_;
  plan_next(core);
}

void Simulation::record(bool records) {
  records_ = records;
  hops_.clear();
  for (Rank& rank : ranks_) rank.hop = rank.cause = -1;
}

/// Hops that take no time are omitted; the hop before such a hop takes its place.
std::int64_t Simulation::add_hop(const Hop& hop) {
  if (!records_) return -1;
  if (hop.end == hop.begin) return hop.previous;
  hops_.push_back(hop);
  return static_cast<std::int64_t>(hops_.size()) - 1;
}

void Simulation::stop_here() {
  Rank& own = ranks_[at(current_)];
  own.stopped = true;
  leave_core(current_);
  own.fibre->leave();
}

/// Reports a write of the current rank to its node. Waiting ranks see it after the signal's delay;
/// others see the memory when they poll.
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
