// SPDX-License-Identifier: Apache-2.0
// Inquiry: finds out which rank is to blame for a wait that exceeds its deadline.
//
// A rank whose deadline has passed may wait for one that itself waits for a third. Ranks enter a
// call at different times, so the rank that waits for the culprit need not be the first whose
// deadline passes:
//
//     rank 0 --waits for--> rank 2 --waits for--> rank 3, which does not come
//          deadline, 2 ->           <- I wait, too
//                                       deadline, 3 ->        no answer: rank 3 is named
//
// So a rank asks those it waits for before it names them: by a Notice in another node, by
// ControlBlock::asked in its own. A rank that waits in the same call, or in an earlier one, answers
// so; then its deadline counts as passed, too, and it asks in turn. A rank that is asked and does
// not answer for a second is named. One that waits in a call of another group may answer what it
// does instead: it is named all the same, with that. Nobody asks before a deadline has passed;
// afterwards each missing rank is asked twice a second. Nothing that a wait has learnt is kept for
// the next one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/job/topology.hpp"
#include "collectives/wait/failure.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/sleepers.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// The questions of a wait to the ranks that it needs, and its answers to ranks that wait for it.
/// All times are measured from the beginning of the wait.
class Inquiry {
 public:
  using Clock = std::chrono::steady_clock;
  /// The longest time of a wait: `deadline` in general, `grace` once the process has been told to
  /// end.
  struct Limits {
    Clock::duration deadline;
    Clock::duration grace;
  };

  Inquiry(const NodeMemory& memory, const Topology& topology, Transport* transport,
          Failure& failure, const Sleepers& sleepers, const Limits& limits)
      : memory_(memory),
        topology_(topology),
        transport_(transport),
        failure_(failure),
        sleepers_(sleepers),
        limits_(limits) {}

  /// Begins a wait, and forgets what the previous one has learnt.
  void begin();
  /// True if a rank that waits for this one has passed its deadline, and asks.
  [[nodiscard]] bool is_asked(Clock::duration waited);
  /// Handles a notice in which a rank of another node asks or answers.
  void take(const Notice& notice, Clock::duration waited);
  /// Forgets all questions, because no deadline counts as passed any more.
  void close() { questions_.clear(); }
  [[nodiscard]] bool is_open() const { return !questions_.empty(); }

  /// Continues the inquiry, once this wait or a wait for this rank has exceeded its deadline.
  /// Throws once the rank to blame is known, or can no longer be found out. A rank that waits for
  /// its GPU (`missing` is empty) does not answer.
  void go_on(const std::vector<int>& missing, Clock::duration waited, bool is_terminating);

 private:
  /// The questions of this rank to another one.
  struct Question {
    std::optional<Clock::duration> asked_at;  ///< time of the last question
    /// Time of the first question since the last answer.
    std::optional<Clock::duration> open_since;
    int times = 0;              ///< number of questions since the last answer
    std::uint64_t answers = 0;  ///< the last value seen of ControlBlock::answers
    std::string elsewhere;      ///< what the rank does instead, if it has told

    void close() {
      open_since.reset();
      times = 0;
    }
  };

  [[nodiscard]] bool is_of_a_call() const {
    return failure_.call() != nullptr && !failure_.call()->is_message;
  }
  [[nodiscard]] bool is_asked_again() const;
  void be_asked(Clock::duration waited);
  void answer();
  [[nodiscard]] std::vector<int> absent_among(const std::vector<int>& missing) const;
  [[nodiscard]] std::vector<int> silent_among(const std::vector<int>& missing,
                                              Clock::duration waited);
  void look_for_answer(int rank, Question& question) const;
  void ask(const std::vector<int>& missing, Clock::duration waited);
  void ask(int rank, Clock::duration waited);
  [[nodiscard]] Clock::duration time_for_answers() const;
  [[nodiscard]] Clock::duration time_between_questions() const;
  [[noreturn]] void expire(const std::vector<int>& missing, Clock::duration waited,
                           bool is_terminating);

  const NodeMemory& memory_;
  const Topology& topology_;
  Transport* transport_;
  Failure& failure_;
  const Sleepers& sleepers_;
  const Limits limits_;

  std::uint64_t asked_times_ = 0;  ///< the last value seen of ControlBlock::asked
  std::optional<Clock::duration> is_up_since_;
  std::optional<Clock::duration> asked_at_;  ///< when this rank was last asked
  Clock::duration asked_since_{0};  ///< when it was first asked in the current series of questions
  bool is_asked_in_node_ = false;   ///< a rank of this node has asked, and has no answer yet
  std::vector<int> askers_;  ///< ranks of other nodes that have asked, and have no answer yet
  std::unordered_map<int, Question> questions_;
};

}  // namespace tutti::collectives
