// SPDX-License-Identifier: Apache-2.0
// Carries out collective calls on one rank: agreement first, then the algorithm.
#pragma once

#include <memory>

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

/// One rank's end of the group. All ranks construct theirs with the same settings.
///
/// A call goes through these states; every rank of the group goes through the same ones:
///   start    what may fail on one rank alone is done; then the sequence number is drawn and
///            announced to the node, with the call's signature
///   agree    all announcements are compared, in the node and between nodes
///   explain  only if they differ, or a rank refused its call: all ranks throw the same error
///   reduce   the data moves
class Engine {
 public:
  /// `transport` may be null if there is one node; if not, waits drive it. The arenas' scratch
  /// slots hold tuning.chunk_bytes each.
  Engine(NodeMemory memory, Topology topology, const Settings& settings, Transport* transport,
         AllocateShared allocate_shared, const Tuning& tuning);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Carries out a call. Collective. True if it is done; false, on all ranks alike, if all made the
  /// same call but with different checks: then nothing was changed.
  /// Errors: mismatch and what another rank refused its call with (agreed, nothing was changed);
  /// communication, timeout (failed).
  bool run(const Operation& operation) {
    start(operation);
    return finish();
  }
  /// The two halves of run(): start() announces and returns, finish() completes. One call at a
  /// time is under way; the operation must outlive finish().
  void start(const Operation& operation);
  bool finish();

  /// Takes part in the other ranks' next call without making one, so that they can throw instead
  /// of waiting, and throws what they throw: this rank's error, with its name in front.
  [[noreturn]] void throw_on_all_ranks(ErrorCode code, const std::string& why);

  /// Messages between two ranks.
  [[nodiscard]] MessageCalls& messages() { return messages_; }

  /// Waits for something that is not a rank: the work of a GPU, which `what` describes. As long as
  /// a call waits, and with an ear for failures. Errors: timeout, communication (failed).
  void await(FunctionRef<bool()> ready, FunctionRef<std::string()> what);

  /// This rank cannot go on with what all ranks are in the middle of: fails the group with its
  /// error, unless the others know of that already, and throws.
  [[noreturn]] void fail(const LocalError& error) { waiter_.fail(error); }

  /// Throws if the group has failed.
  void check_usable() { waiter_.check_failure(); }
  /// The same, and fails if a process of this node has ended: for a wait for these ranks that is
  /// not the engine's. `what` names it.
  void check_peers(FunctionRef<std::string()> what);
  [[nodiscard]] bool failed() const { return waiter_.failed(); }
  /// Fails the group because this rank cannot go on; the caller throws.
  /// False if another failure came first.
  bool raise_failure(ErrorCode code, const std::string& text) {
    return waiter_.raise_failure(code, text);
  }
  /// Tells the others that no call will follow. Local; the last thing an engine is asked to do.
  void leave(bool by_exception) { waiter_.leave(call_.sequence(), by_exception); }

  /// The last call's record: the program's updater runs, and has ended.
  void begin_update() {
    call_.mark(Phase::updating);
    call_.turn_to(Activity::update);
  }
  void end_update() {
    call_.mark(Phase::done);
    call_.turn_to(Activity::finish);
  }
  void set_observer(const Observer* observer) { waiter_.set_observer(observer); }

  /// How waits are from now on: see Waiter::set_patience(), rouse() and progress().
  void set_patience(const Patience* patience, bool beside) {
    waiter_.set_patience(patience, beside);
  }
  void rouse() { waiter_.rouse(); }
  bool progress() { return waiter_.progress(); }

  /// Asks all ranks to stop, in the next call; so does the flag, once it is set. Any thread.
  void request_stop() { call_.announcement().request_stop(); }
  void watch(const StopFlag& stop);
  /// True once a call that all ranks have made carried a request to stop: the same on all ranks
  /// after the same call.
  [[nodiscard]] bool stop_requested() const { return stop_requested_; }

  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] const NodeMemory& memory() const { return memory_; }
  [[nodiscard]] const Tuning& tuning() const { return tuning_; }
  /// See Learner::adopt(). The same on all ranks of the node, before the first call.
  std::size_t adopt(std::span<const LearntPath> known) { return learner_.adopt(known); }
  [[nodiscard]] const Learner& learner() const { return learner_; }
  /// The threads that help this rank, between calls too.
  [[nodiscard]] Workers& workers() { return call_.workers(); }
  [[nodiscard]] const Log& log() const { return waiter_.log(); }
  [[nodiscard]] StatisticsCollector& statistics() { return statistics_; }
  /// See StatisticsCollector::keep_spans().
  void keep_spans(std::size_t most) {
    statistics_.keep_spans(most);
    call_.keep_in(statistics_.spans());
  }

 private:
  /// How a call ends that does not fail the group: `refused` has a report, which all ranks throw.
  enum class Outcome { done, differs, refused };
  [[nodiscard]] Outcome carry_out();
  [[nodiscard]] Outcome carry_out_logged();
  /// Waits for all ranks' announcements; true if all are of one call.
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
  bool is_one_node_;  ///< where small data has places of its own, on all ranks alike
  bool logs_calls_;   ///< also small ones, which then end by the general way, on this rank alone
  bool stop_requested_ = false;
  CombinePlan plan_;
  Waiter waiter_;
  StatisticsCollector statistics_;
  Call call_;
  Learner learner_;
  Router router_;
  std::uint64_t announced_at_ = 0;        ///< when the current call was, in ticks() or nanoseconds
  std::unique_ptr<Agreement> agreement_;  ///< on the first rank of each of several nodes
  std::unique_ptr<LaneExchange> lane_;    ///< on the ranks that carry a share between nodes
  Disagreement disagreement_;
  MessageCalls messages_;
};

}  // namespace tutti::collectives
