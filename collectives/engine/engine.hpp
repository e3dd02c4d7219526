// SPDX-License-Identifier: Apache-2.0
// Engine: carries out collective calls on one rank.
#pragma once

#include <memory>
#include <utility>

#include "collectives/choice/learner.hpp"
#include "collectives/engine/disagreement.hpp"
#include "collectives/engine/message_calls.hpp"
#include "collectives/engine/statistics_collector.hpp"
#include "collectives/job/local_error.hpp"
#include "collectives/lanes/agreement.hpp"
#include "collectives/lanes/lane.hpp"
#include "collectives/lanes/reduce_in_lanes.hpp"
#include "collectives/node/call.hpp"
#include "collectives/node/reductions.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// The engine of one rank in a group. All ranks construct theirs with the same settings.
///
/// A call goes through these states, in the same order on all ranks of the group:
///   start    prepares what may fail on this rank alone, then draws the sequence number and
///            announces the call with its signature to the node
///   agree    compares all announcements, in the node and between nodes
///   explain  only if they differ, or a rank refused its call: all ranks throw the same error
///   reduce   moves the data
class Engine {
 public:
  /// `transport` may be null if there is only one node; otherwise waits drive it. The scratch slots
  /// in the arenas have tuning.chunk_bytes each.
  Engine(NodeMemory memory, Topology topology, const Settings& settings, Transport* transport,
         AllocateShared allocate_shared, const Tuning& tuning);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Carries out a call. Collective. Returns true if it is done; false, on all ranks alike, if all
  /// made the same call but with different checks, in which case nothing was changed. Errors:
  /// mismatch, and the error with which another rank refused its call (agreed; nothing was
  /// changed); communication, timeout (failed).
  bool run(const Operation& operation) {
    start(operation);
    return finish();
  }
  /// The two halves of run(): start() announces the call and returns, finish() completes it. There
  /// is only one call at a time, and the operation must outlive finish().
  void start(const Operation& operation);
  bool finish();

  /// Takes part in the other ranks' next call by a refusal, so that they throw instead of waiting,
  /// and throws the same error: this rank's, preceded by its name.
  [[noreturn]] void throw_on_all_ranks(ErrorCode code, const std::string& why);

  /// Messages between two ranks.
  [[nodiscard]] MessageCalls& messages() { return messages_; }

  /// Waits for something that is not a rank, such as the work of a GPU, which `what` describes. It
  /// has the deadline of a call, and notices failures. Errors: timeout, communication (failed).
  void await(FunctionRef<bool()> ready, FunctionRef<std::string()> what);

  /// Fails the group with an error of this rank, which cannot continue something that all ranks
  /// have begun, unless the others know of the error already. Throws.
  [[noreturn]] void fail(const LocalError& error) { waiter_.fail(error); }

  /// Throws if the group has failed.
  void check_usable() { waiter_.check_failure(); }
  /// Throws if the group has failed, and fails it if a process of this node has ended. For waits
  /// for these ranks outside the engine; `what` names the wait.
  void check_peers(FunctionRef<std::string()> what);
  [[nodiscard]] bool failed() const { return waiter_.failed(); }
  /// Fails the group because this rank cannot go on; the caller then throws. `reporter` and the
  /// returned value: see Failure::raise_for().
  bool raise_failure(ErrorCode code, const std::string& text, int reporter = kThisRank) {
    return waiter_.raise_failure(code, text, reporter);
  }
  /// Tells the other ranks that this one makes no more calls, once. Local.
  void leave(bool by_exception) {
    if (!std::exchange(has_left_, true)) waiter_.leave(call_.sequence(), by_exception);
  }

  /// Record in the last call's record that the program's updater begins, or has ended.
  void begin_update() {
    call_.mark(Phase::updating);
    call_.turn_to(Activity::update);
  }
  void end_update() {
    call_.mark(Phase::done);
    call_.turn_to(Activity::finish);
  }

  /// How this rank waits, and what others learn of it.
  [[nodiscard]] Waiter& waiter() { return waiter_; }

  /// Asks all ranks to stop, in the next call; so does the flag of watch(), once it is set.
  /// Callable from any thread.
  void request_stop() { call_.announcement().request_stop(); }
  void watch(const StopFlag& stop);
  /// True once a call of all ranks carried a request to stop. All ranks see this after the same
  /// call.
  [[nodiscard]] bool stop_requested() const { return stop_requested_; }

  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] const NodeMemory& memory() const { return memory_; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }
  /// See Learner::adopt(). All ranks of the node call it alike, before the first call.
  std::size_t adopt(std::span<const LearntPath> known) { return learner_.adopt(known); }
  [[nodiscard]] const Learner& learner() const { return learner_; }
  /// The helper threads of this rank, which may also be used between calls.
  [[nodiscard]] Workers& workers() { return call_.workers(); }
  [[nodiscard]] const Log& log() const { return waiter_.log(); }
  [[nodiscard]] StatisticsCollector& statistics() { return statistics_; }
  /// See StatisticsCollector::keep_spans().
  void keep_spans(std::size_t most) {
    statistics_.keep_spans(most);
    call_.keep_in(statistics_.spans());
  }

 private:
  /// Outcomes of a call that do not fail the group. After `refused` there is a report, which all
  /// ranks throw.
  enum class Outcome { done, differs, refused };
  [[nodiscard]] Outcome carry_out();
  [[nodiscard]] Outcome carry_out_logged();
  /// Waits for the announcements of all ranks. Returns true if all are of the same call.
  [[nodiscard]] bool meet();
  std::uint64_t complete_small();
  void prepare(const Operation& operation);
  [[nodiscard]] bool agree_between_nodes();
  template <class Body>
  void or_fail(Body body);
  void reduce();
  void reduce_by_path();
  void reduce_between_nodes();
  void deliver_sums_of_agreement();
  void learn_last_time();

  NodeMemory memory_;
  Topology topology_;
  Tuning tuning_;
  bool wide_;
  bool is_one_node_;  ///< small data then takes the shorter ways, on all ranks alike
  bool logs_calls_;   ///< logs all calls; small ones then skip the shorter ways, on this rank alone
  bool stop_requested_ = false;
  bool has_left_ = false;
  CombinePlan plan_;
  Waiter waiter_;
  StatisticsCollector statistics_;
  Call call_;
  Learner learner_;
  Path planned_;  ///< of the current call, if it moves data in the node after it is announced
  Router router_;
  /// Time of the current call's announcement, in ticks() or nanoseconds.
  std::uint64_t announced_at_ = 0;
  std::unique_ptr<Agreement> agreement_;  ///< only on the first rank of each node, of several nodes
  std::unique_ptr<LaneExchange> lane_;    ///< only on ranks that carry a share between nodes
  Disagreement disagreement_;
  MessageCalls messages_;
};

}  // namespace tutti::collectives
