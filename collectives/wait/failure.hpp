// SPDX-License-Identifier: Apache-2.0
// Failure: how a rank raises a failure, and how it notices failures of others.
//
// Only the first failure of a node counts. It is stored in the control block of the rank that
// raised it, and every rank that waits or begins a call throws it. Other nodes learn of failures,
// and of ranks that have left, from notices.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/function_ref.hpp"
#include "collectives/job/local_error.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/sleepers.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// Who reports a failure: the rank that reports an error which all ranks throw alike, the rank that
/// raises it, or none, because it has been said.
inline constexpr int kReporterOfAgreed = 0;
inline constexpr int kThisRank = -1;
inline constexpr int kNoRank = -2;
/// The same for an error that all ranks throw alike, of which this rank has caught its own.
inline int reporter_of_agreed(const Error& error) noexcept {
  return error.reporter() ? kThisRank : kReporterOfAgreed;
}

/// Examines another rank of this node that gives no signal.
class Observer {
 public:
  virtual ~Observer() = default;
  /// True if the process of the rank has ended.
  [[nodiscard]] virtual bool is_gone(int local_rank) const = 0;
  /// Describes what the rank is doing, such as "is stopped (state T); its last call: ...". Empty if
  /// nothing is known.
  [[nodiscard]] virtual std::string describe(int local_rank) const = 0;
};

/// Formats a duration for messages, such as "0.25 s".
std::string in_seconds(std::chrono::steady_clock::duration time);

/// Makes the node's ranks fail with this text. Returns false if the node has failed already.
/// Callable from any thread. `reporter`: whichever thread of this rank meets the failure reports
/// it, see Error::reporter(); false if another rank does, or the caller has.
bool raise_in_node(const NodeMemory& memory, ErrorCode code, const std::string& text,
                   bool reporter);
/// True if the node has failed, and the threads of this rank report it. Callable from any thread.
bool reports_failure(const NodeMemory& memory);

/// The call that is being executed, for messages. `describe` returns it in words ("push of key 3").
struct CallInProgress {
  std::uint64_t sequence = 0;
  FunctionRef<std::string()> describe;
  /// The call is a message between two ranks. It has no sequence number of its own: `sequence` is
  /// that of the call before which it was made.
  bool is_message = false;
};

/// The failure state of a rank's group. In all functions, `missing` lists the ranks that a wait
/// still needs.
class Failure {
 public:
  Failure(const NodeMemory& memory, const Topology& topology, Transport* transport,
          const Sleepers& sleepers)
      : memory_(memory), topology_(topology), transport_(transport), sleepers_(sleepers) {}

  /// Sets the call that later messages name, null after the call. `call` must stay valid until
  /// then.
  void set_call(const CallInProgress* call) {
    call_ = call;
    sender_may_leave_ = false;
  }
  [[nodiscard]] const CallInProgress* call() const { return call_; }
  /// Returns the name of the call for messages, such as "push of key 3 (call 17)".
  [[nodiscard]] std::string call_name() const;

  /// Allows the sender of a message to leave once the first part of it has arrived: the sender
  /// leaves when MPI has accepted the rest, which may arrive after the notice that the sender has
  /// left.
  void let_sender_leave() { sender_may_leave_ = true; }

  /// Sets the observer, which examines missing ranks of this node. May be null.
  void set_observer(const Observer* observer) { observer_ = observer; }
  /// Returns what is known of the first few missing ranks: what the observer can tell, or `told`,
  /// which returns what a rank of another node has told of itself.
  [[nodiscard]] std::string observations(
      const std::vector<int>& missing,
      FunctionRef<std::string(int rank)> told = [](int) { return std::string(); }) const;

  /// Raises the node's failure, tells the other nodes, and throws. If the node has failed already,
  /// throws that failure.
  [[noreturn]] void fail(ErrorCode code, const std::string& text, bool reporter = true);
  /// Calls fail() with an error of this rank, whose name precedes the text. If it is called while
  /// an exception from the program's own code is being handled, that exception is nested in the
  /// thrown one.
  [[noreturn]] void fail(const LocalError& error);
  /// Raises a failure as fail() does, but does not throw: for a rank that throws an exception of
  /// its own. Returns false if the node had failed before. `reporter`: as in raise_in_node().
  bool raise(ErrorCode code, const std::string& text, bool reporter);
  /// Raises a failure that several ranks raise, of which `reporter` reports it: if that is another
  /// rank of this node, after it has raised it, or a second. It may be kThisRank or kNoRank.
  /// Returns true if the threads of this rank report the node's failure.
  bool raise_for(ErrorCode code, const std::string& text, int reporter);

  /// Throws if this node has failed.
  void check() const {
    if (failed()) throw_it();
  }
  [[nodiscard]] bool failed() const {
    return memory_.first().failure.load(std::memory_order_acquire) != kHealthy;
  }

  /// Tells all ranks that this one takes part in no call after `last_sequence`. If it leaves by an
  /// exception, this rank reports it, and the others do not.
  void leave(std::uint64_t last_sequence, bool by_exception);
  /// Fails if a missing rank has left.
  void check_leavers(FunctionRef<std::vector<int>()> missing);
  /// Fails if the process of a missing rank of this node has ended.
  void check_processes(FunctionRef<std::vector<int>()> missing);
  /// Handles a notice that another node has failed, or that ranks of another node have left.
  void take(const Notice& notice);

 private:
  [[noreturn]] void throw_it() const;
  void wait_until_failed() const;
  void tell_other_nodes(const Notice& notice) noexcept;
  [[nodiscard]] std::uint64_t left_of_node() const;
  [[nodiscard]] std::uint64_t left_of(int rank) const;

  const NodeMemory& memory_;
  const Topology& topology_;
  Transport* transport_;
  const Sleepers& sleepers_;
  const CallInProgress* call_ = nullptr;
  bool sender_may_leave_ = false;
  const Observer* observer_ = nullptr;
  /// Ranks of other nodes that have left, with ControlBlock::left.
  std::unordered_map<int, std::uint64_t> left_elsewhere_;
  /// Nodes that all ranks have left, with left_of_node().
  std::unordered_map<int, std::uint64_t> nodes_left_;
};

}  // namespace tutti::collectives
