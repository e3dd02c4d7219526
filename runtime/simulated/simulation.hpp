// SPDX-License-Identifier: Apache-2.0
// Simulation: a discrete-event clock, and a fibre for each rank of a simulated cluster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "collectives/job/pace.hpp"
#include "runtime/simulated/fibre.hpp"
#include "runtime/simulated/network.hpp"

namespace tutti::simulated {

/// Picoseconds since the beginning of the simulation: at 400 Gb/s a byte takes 20 of them.
using Time = std::int64_t;
inline constexpr Time kSecond = 1'000'000'000'000;
Time in_picoseconds(double seconds);

/// The reasons why the time of a rank passes.
enum class Spent : std::uint8_t {
  call,      ///< its core prepares a call, before anything moves
  turn,      ///< it waits for its turn on a shared core
  overhead,  ///< its core sends or receives a message
  work,      ///< its core works on data
  signal,    ///< until it sees what a rank of its node has written
  question,  ///< until a long message is requested
  port,      ///< until a port is free
  wire,      ///< while a message passes a port
  latency,   ///< of a message from port to port
};
inline constexpr std::size_t kKindsOfSpent = 9;

/// An interval of time, and the one that had to end before it began.
struct Hop {
  std::int64_t previous;  ///< number of the previous hop; -1 if none is known
  Spent on;
  int rank;  ///< the rank whose time it is, or that the message goes to
  Time begin;
  Time end;
};

/// Executes the bodies of all ranks in one thread, in the order of simulated time; events at the
/// same time are executed in the order of their creation. So all runs are alike.
class Simulation {
 public:
  /// Ranks are in consecutive nodes of these sizes. `data` is false if results do not matter, which
  /// saves memory and time.
  Simulation(const Network& network, const std::vector<int>& node_sizes, bool data = true);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const std::vector<int>& node_sizes() const { return node_sizes_; }
  [[nodiscard]] int node_of(int rank) const { return ranks_[at(rank)].node; }
  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] bool has_data() const { return data_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] collectives::Pace& pace(int rank);

  /// Calls body(rank) for every rank, and returns when all of them have returned. Can be called
  /// again.
  void run(const std::function<void(int)>& body);

  // --- for what is simulated: called by the current rank, or by an event ------------------------

  /// The current rank's core is busy for this time.
  void spend(Time time, Spent on);
  /// The current rank does nothing until this time.
  void sleep_until(Time time);
  /// Calls `action` at a time that is not in the past.
  void at_time(Time time, std::function<void()> action);
  /// Makes a rank test again what it waits for, now or at its next wait. The reason is the given
  /// hop.
  void poke(int rank, std::int64_t hop = -1);
  /// Counts that the current rank has polled for a message that has not arrived.
  void looked() { ++ranks_[at(current_)].looks; }
  /// Stops the current rank until every other one has returned or stopped.
  void stop_here();

  // --- causes of waiting; recorded only on demand, because a long job has many hops -------------

  /// Begins or ends recording, and forgets all hops.
  void record(bool records);
  /// Adds a hop, and returns its number; -1 if nothing is recorded, or no time passes.
  std::int64_t add_hop(const Hop& hop);
  /// Return the last hop of a rank, and any hop by its number.
  [[nodiscard]] std::int64_t last_hop(int rank) const { return ranks_[at(rank)].hop; }
  [[nodiscard]] std::int64_t last_hop() const { return last_hop(current_); }
  [[nodiscard]] const Hop& hop(std::int64_t number) const {
    return hops_[static_cast<std::size_t>(number)];
  }

 private:
  class RankPace;
  struct Rank {
    int node = 0;
    std::unique_ptr<Fibre> fibre;
    std::unique_ptr<RankPace> pace;
    bool waiting = false;
    bool poked = false;
    bool stopped = false;
    bool due = false;  ///< only waits for its turn
    Time due_since = 0;
    int looks = 0;        ///< polls since it last waited
    Time signalled = -1;  ///< the last time at which it will notice a signal
    std::int64_t hop = -1;
    std::int64_t cause = -1;  ///< the hop that it was poked for
  };
  /// A core that ranks share. A rank has the core until it has nothing to do and has polled for a
  /// while. While all of them wait, each polls in turn and passes the core on.
  struct Core {
    std::vector<int> turns;  ///< ranks of this core; the first one has it, or polled at `since`
    bool has_owner = false;
    Time since = 0;
    std::uint64_t epoch = 0;  ///< actions planned in an earlier epoch are dropped
  };
  struct Event {
    Time time;
    std::uint64_t number;
    int rank;  ///< rank to be poked, or with `resumes` resumed; -1 for an action
    bool resumes;
    std::size_t action;
    std::int64_t hop = -1;
    friend bool operator>(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  void pass(Time time);
  void start_cores();
  [[nodiscard]] bool shares_core() const { return !cores_.empty(); }
  Core& core_of(int rank) { return cores_[at(ranks_[at(rank)].node) % cores_.size()]; }
  void plan(Core& core, Time time, std::function<void()> action);
  void wait_for_turn(Rank& own);
  void become_due(int rank, std::int64_t hop);
  void give_on(Core& core);
  void plan_next(Core& core);
  void hand_to(Core& core, std::size_t place);
  void leave_core(int rank);
  void wait();
  void signalled();
  void resume(int rank);
  void happen(const Event& event);
  void push(Event event);
  void wake_all(bool stopped_ones);

  const Network network_;
  const std::vector<int> node_sizes_;
  const bool data_;
  std::vector<int> first_of_node_;
  std::vector<Rank> ranks_;
  Stacks stacks_;
  Time now_ = 0;
  int current_ = -1;  ///< the rank that is executing
  int unfinished_ = 0;
  std::uint64_t next_number_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::function<void()>> actions_;
  std::vector<std::size_t> free_actions_;
  std::vector<Core> cores_;  ///< the shared cores
  bool records_ = false;
  std::vector<Hop> hops_;
};

}  // namespace tutti::simulated
