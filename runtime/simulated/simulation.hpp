// SPDX-License-Identifier: Apache-2.0
// Ranks of a cluster that is not there: a discrete-event clock, and a fibre for each rank.
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

/// Picoseconds since the simulation began: a byte takes 20 of them at 400 Gb/s.
using Time = std::int64_t;
inline constexpr Time kSecond = 1'000'000'000'000;
Time in_picoseconds(double seconds);

/// What a rank's time goes by on.
enum class Spent : std::uint8_t {
  call,      ///< of its core, before anything moves
  turn,      ///< until a shared core comes round to it
  overhead,  ///< of its core, for a message that it sends or receives
  work,      ///< of its core, over data
  signal,    ///< until it sees what a rank of its node has written
  question,  ///< until a long message is asked for
  port,      ///< until a port is free
  wire,      ///< while a message passes a port
  latency,   ///< from port to port
};
inline constexpr std::size_t kKindsOfSpent = 9;

/// A stretch of time, and the one that had to end before it began.
struct Hop {
  std::int64_t previous;  ///< its number; -1: none that is known
  Spent on;
  int rank;  ///< that it is of, or that the message goes to
  Time begin;
  Time end;
};

/// Executes the bodies of all ranks in one thread, in the order of simulated time; where times are
/// equal, in the order in which they came about. Two runs are therefore alike.
class Simulation {
 public:
  /// Ranks in consecutive nodes of these sizes. `data`: false if results do not matter, so that
  /// memory and time need not be spent on them.
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

  /// Calls body(rank) for every rank, and returns when all have returned. May be called again.
  void run(const std::function<void(int)>& body);

  // --- for what is simulated: called by the rank that is executing, or by an event ---------------

  /// The rank that is executing needs a core for so long.
  void spend(Time time, Spent on);
  /// It does nothing until then.
  void sleep_until(Time time);
  /// Calls `action` at a time that is not in the past.
  void at_time(Time time, std::function<void()> action);
  /// The rank looks again at what it waits for, now or when it next waits: because of this hop.
  void poke(int rank, std::int64_t hop = -1);
  /// The rank that is executing has looked at a message that has not come.
  void looked() { ++ranks_[at(current_)].looks; }
  /// The rank that is executing stops until every other one has returned or stopped.
  void stop_here();

  // --- what waited for what: only while recorded, because a long job has many hops ---------------

  /// From now on, and nothing from before; or no more.
  void record(bool records);
  /// Adds one, which gets a number; -1 where nothing is recorded, or no time passes.
  std::int64_t add_hop(const Hop& hop);
  /// The last one of a rank, and any by its number.
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
    bool due = false;  ///< waits for its turn only
    Time due_since = 0;
    int looks = 0;        ///< since it last waited
    Time signalled = -1;  ///< the last time for which it will be told of a signal
    std::int64_t hop = -1;
    std::int64_t cause = -1;  ///< the hop that it was poked for
  };
  /// A core that ranks share. One has it until it has nothing to do and has looked for a while;
  /// where all of them wait, each looks and gives it on.
  struct Core {
    std::vector<int> turns;  ///< its ranks; the first has it, or looked at `since`
    bool has_owner = false;
    Time since = 0;
    std::uint64_t epoch = 0;  ///< what was planned in an earlier one does not happen
  };
  struct Event {
    Time time;
    std::uint64_t number;
    int rank;  ///< to be poked, or with `resumes` gone on with; -1 for an action
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
  std::vector<Core> cores_;  ///< the shared ones
  bool records_ = false;
  std::vector<Hop> hops_;
};

}  // namespace tutti::simulated
