// SPDX-License-Identifier: Apache-2.0
// The one way to fail: how a rank raises a failure, and what it notices of others.
//
// The first failure of a node stands, in the block of the rank that raised it, and every rank that
// waits or begins a call throws it. Other nodes learn of it, and of ranks that have left, by
// notices.
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

/// Finds out about another rank of this node that gives no signal.
class Observer {
 public:
  virtual ~Observer() = default;
  /// True if its process has ended.
  [[nodiscard]] virtual bool is_gone(int local_rank) const = 0;
  /// What the rank does, as far as can be seen: "is stopped (state T); its last call: ...". Empty
  /// if nothing is known.
  [[nodiscard]] virtual std::string describe(int local_rank) const = 0;
};

/// "0.25 s", for messages.
std::string in_seconds(std::chrono::steady_clock::duration time);

/// The node's ranks fail with this text, unless it has failed already: then false. Any thread.
bool raise_in_node(const NodeMemory& memory, ErrorCode code, const std::string& text);

/// The call that is being executed, for messages. `describe` gives it in words ("push of key 3").
struct CallInProgress {
  std::uint64_t sequence = 0;
  FunctionRef<std::string()> describe;
  /// The call is a message between two ranks. It has no sequence number of its own: `sequence` is
  /// that of the call before which it was made.
  bool is_message = false;
};

/// The failure of a rank's group. Ranks are those that a wait lacks wherever they are `missing`.
class Failure {
 public:
  Failure(const NodeMemory& memory, const Topology& topology, Transport* transport,
          const Sleepers& sleepers)
      : memory_(memory), topology_(topology), transport_(transport), sleepers_(sleepers) {}

  /// The call that later messages name; null after it. The callee must outlive the call.
  void set_call(const CallInProgress* call) {
    call_ = call;
    sender_may_leave_ = false;
  }
  [[nodiscard]] const CallInProgress* call() const { return call_; }
  /// "push of key 3 (call 17)"
  [[nodiscard]] std::string call_name() const;

  /// For a message whose first part has come: its sender leaves when MPI has taken the rest, which
  /// may arrive after the notice that the sender has left.
  void let_sender_leave() { sender_may_leave_ = true; }

  /// Who can tell about ranks that do not come. May be null.
  void set_observer(const Observer* observer) { observer_ = observer; }
  /// What the observer sees of the first missing rank that it sees anything of.
  [[nodiscard]] std::string observations(const std::vector<int>& missing) const;

  /// Raises the node's failure, tells the other nodes, and throws. The first failure stands.
  [[noreturn]] void fail(ErrorCode code, const std::string& text, bool reporter = true);
  /// fail() with an error of this rank, whose name stands in front. In a handler, the exception of
  /// the program's own is nested in what is thrown.
  [[noreturn]] void fail(const LocalError& error);
  /// fail() without throwing, for a rank that has an exception of its own to throw. False if the
  /// node had failed before.
  bool raise(ErrorCode code, const std::string& text);

  /// Throws if this node has failed.
  void check() const {
    if (failed()) throw_it();
  }
  [[nodiscard]] bool failed() const {
    return memory_.first().failure.load(std::memory_order_acquire) != kHealthy;
  }

  /// Tells all ranks that this one takes part in no call after `last_sequence`; if an exception is
  /// why, the others leave it to this rank to say so.
  void leave(std::uint64_t last_sequence, bool by_exception);
  /// Fails if a missing rank has left.
  void check_leavers(FunctionRef<std::vector<int>()> missing);
  /// Fails if the process of a missing rank of this node has ended.
  void check_processes(FunctionRef<std::vector<int>()> missing);
  /// A notice that another node has failed, or that ranks of it have left.
  void take(const Notice& notice);

 private:
  [[noreturn]] void throw_it() const;
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
  std::unordered_map<int, std::uint64_t> left_elsewhere_;  ///< ranks of other nodes that left
  std::unordered_map<int, std::uint64_t> nodes_left_;      ///< nodes of which all ranks have left
};

}  // namespace tutti::collectives
