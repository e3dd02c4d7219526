// SPDX-License-Identifier: Apache-2.0
// Whom to blame for a wait that comes to nothing, and in what words.
//
// A rank whose time is up may wait for one that waits itself, for a third. Ranks come to a call at
// different times, so the one that waits for the culprit need not be the first whose time is up:
//
//     rank 0 --waits for--> rank 2 --waits for--> rank 3, which does not come
//          time's up, 2 ->          <- I wait, too
//                                       time's up, 3 ->       no answer: rank 3 is named
//
// So a rank asks those it waits for before it names them: by a Notice in another node, by
// ControlBlock::asked in its own. One that waits in the same call, or in one before it, says so;
// its time is up then as well, and it asks in its turn. Who is asked and does not answer for a
// second is named. Nobody asks before a deadline; then each is asked twice a second, and once
// it comes, nothing of this is left: what one wait has learnt ends with it.
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

/// The questions of a wait to the ranks that it lacks, and its answers to those that wait for it.
/// All times are those since the wait began.
class Inquiry {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long a wait takes at most: always, and once the process has been told to end.
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

  /// A wait begins: what the one before has learnt is forgotten.
  void begin();
  /// Whether a rank that waits for this one can wait no longer.
  [[nodiscard]] bool is_asked(Clock::duration waited);
  /// A notice of another node's rank that asks or answers.
  void take(const Notice& notice, Clock::duration waited);
  /// Nobody's time is up any more: what was asked is forgotten.
  void close() { questions_.clear(); }
  [[nodiscard]] bool is_open() const { return !questions_.empty(); }

  /// The time of this wait is up, or of one that waits for this rank. Throws once it is known who
  /// is to blame, or can be known no more. A rank that waits for its GPU (`missing` is empty) gives
  /// no answer.
  void go_on(const std::vector<int>& missing, Clock::duration waited, bool is_terminating);

 private:
  /// A question of this rank to another one.
  struct Question {
    std::optional<Clock::duration> asked_at;    ///< last
    std::optional<Clock::duration> open_since;  ///< the first time after the last answer
    int times = 0;                              ///< asked, since then
    std::uint64_t answers = 0;                  ///< ControlBlock::answers, as last seen

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

  std::uint64_t asked_times_ = 0;  ///< ControlBlock::asked, as last seen
  std::optional<Clock::duration> is_up_since_;
  std::optional<Clock::duration> asked_at_;  ///< when this rank was asked last
  Clock::duration asked_since_{0};           ///< when it was asked first, without a pause since
  bool is_asked_in_node_ = false;            ///< by a rank of its node that has no answer yet
  std::vector<int> askers_;                  ///< ranks of other nodes that have no answer yet
  std::unordered_map<int, Question> questions_;
};

}  // namespace tutti::collectives
