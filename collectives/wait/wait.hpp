// SPDX-License-Identifier: Apache-2.0
// The one way to wait, and the one way to fail.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "collectives/job/function_ref.hpp"
#include "collectives/job/relax.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/wait/log.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// How urgently a process has been asked to stop. Only grows.
enum class Stop : std::uint32_t {
  none,
  requested,    ///< there is time to come to a good end
  terminating,  ///< the process will be killed soon, and peers may have been
};

/// Set by a signal handler or by the program, read at every announcement.
using StopFlag = std::atomic<Stop>;
static_assert(StopFlag::is_always_lock_free);

/// What can be found out about another rank of this node when it gives no signal.
class Observer {
 public:
  virtual ~Observer() = default;
  /// True if its process has ended.
  [[nodiscard]] virtual bool is_gone(int local_rank) const = 0;
  /// What it does, as far as can be seen: "is stopped (state T); its last call: ...". Empty if
  /// nothing is known.
  [[nodiscard]] virtual std::string describe(int local_rank) const = 0;
};

/// "0.25 s", for messages.
std::string in_seconds(std::chrono::steady_clock::duration time);

/// What waits ask whether they shall end: see set_interrupt_check(). One per process, because what
/// it tells of, a signal, is the process's.
std::atomic<bool (*)() noexcept>& interrupt_check() noexcept;
/// Its answer; false if nobody is asked.
bool interrupted() noexcept;
inline constexpr auto kInterruptedEvery = std::chrono::milliseconds(50);

/// The node's ranks fail with this text, unless it has failed already: then false. Any thread.
bool raise_in_node(const NodeMemory& memory, ErrorCode code, const std::string& text);

/// The call that is being executed, for messages. `describe` gives it in words ("push of key 3").
struct CallInProgress {
  std::uint64_t sequence = 0;
  FunctionRef<std::string()> describe;
  bool is_message = false;  ///< of two ranks, which come before the call that has the sequence
};

/// How a thread waits that makes calls beside one that computes. Shared with the one that computes.
struct Patience {
  std::atomic<int> waiters{0};  ///< threads that wait for the calls; if any, no core is spared
  std::atomic<bool> is_given_up{false};    ///< the wait ends, and fails the group
  std::atomic<std::int64_t> nap{500'000};  ///< nanoseconds between looks at messages
};

/// Waits for other ranks, with the deadline of the call, and raises and notices failures.
///
/// How a wait goes: spin for some microseconds (if every rank of the host can have a core), then
/// yield for some milliseconds (of many ranks on a core, for some microseconds), then sleep on
/// a futex between polls. After about 10 microseconds it also drives the transport, because the
/// application's own pending messages may be what the missing rank waits for. The deadline counts
/// time spent polling, at most one second per poll, so that a job that was suspended and resumed
/// does not expire.
class Waiter {
 public:
  Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
         Transport* transport);

  /// Returns when `ready` does. `missing` lists the ranks waited for; it is called late, to warn,
  /// to ask them and to name them. Errors: timeout; communication if this node failed or a missing
  /// rank has left.
  template <class Ready, class Missing>
  void until(Ready&& ready, Missing&& missing) {
    if (!soon(ready)) slow(ready, missing, Clock::duration::zero());
  }

  /// until() for messages, where `ready` drives the transport itself. It then has the time that
  /// looking for notices takes: what comes between two looks at a message makes the message late.
  template <class Ready, class Missing>
  void until_messages(Ready&& ready, Missing&& missing) {
    if (!soon(ready)) slow(ready, missing, kNoticesEvery);
  }

  /// Polls for the time that most waits take. True if `ready` came to be; false says nothing, and
  /// until() goes on.
  template <class Ready>
  [[nodiscard]] bool soon(Ready&& ready) {
    for (int i = 0; i < (is_patient() ? kPatientPolls : fast_polls_); ++i) {
      if (ready()) return true;
      relax();
    }
    return false;
  }

  /// Waits can be given up from now on; null to end that. If they are made `beside` a thread that
  /// computes, they sleep at once, as long as nobody waits for them.
  void set_patience(const Patience* patience, bool beside) {
    patience_ = patience;
    is_beside_ = patience != nullptr && beside;
  }
  /// Wakes who sleeps in this node, to look again how to wait. Any thread.
  void rouse() { wake_sleepers(); }
  /// Lets the application's messages move, from a thread that waits in another way.
  void progress() {
    if (transport_ != nullptr) transport_->progress();
  }

  /// Wakes ranks of this node that sleep; call it after each signal.
  void wake() {
    if (memory_.first().sleepers.load(std::memory_order_relaxed) != 0) wake_sleepers();
  }

  /// The call that later messages name; null after it. The callee must outlive the call.
  void set_call(const CallInProgress* call) {
    call_ = call;
    sender_may_leave_ = false;
  }
  /// Of a message whose first part has come: its sender leaves when MPI has taken the rest, which
  /// may come after the word of that.
  void let_sender_leave() { sender_may_leave_ = true; }

  /// Once this flag says that the process is terminating, calls wait for Settings::grace only. Null
  /// to end that.
  void watch(const StopFlag* stop) { stop_ = stop; }

  /// Who can tell about ranks that do not come. May be null.
  void set_observer(const Observer* observer) { observer_ = observer; }

  /// Something to poll in every wait: the messages of a collective between nodes.
  void set_poll(const FunctionRef<void()>* poll) { poll_ = poll; }

  /// Raises the node's failure, tells the other nodes, and throws. The first failure stands.
  [[noreturn]] void fail(ErrorCode code, const std::string& text, bool reporter = true);
  /// The same without throwing, for a rank that has an exception of its own to throw. False if the
  /// node had failed before.
  bool raise_failure(ErrorCode code, const std::string& text);

  /// For waits that are not made here: throws if this node has failed, and fails it if a process of
  /// it has ended. Looks no more often than is worth its while.
  void check_peers();

  /// Throws if this node has failed.
  void check_failure() {
    if (raised()) throw_failure();
  }
  [[nodiscard]] bool failed() const {
    return memory_.first().failure.load(std::memory_order_acquire) != kHealthy;
  }

  /// True once the failure's text can be read.
  [[nodiscard]] bool raised() const {
    return memory_.first().failure.load(std::memory_order_acquire) == kRaised;
  }

  [[nodiscard]] const Log& log() const { return log_; }
  /// The time by which this rank waits.
  [[nodiscard]] std::chrono::steady_clock::time_point now() const {
    return memory_.pace == nullptr ? Clock::now() : memory_.pace->now();
  }

  /// Tells all ranks that this one takes part in no call after `last_sequence`; if an exception is
  /// why, the others leave it to this rank to say so.
  void leave(std::uint64_t last_sequence, bool by_exception);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kNoticesEvery = std::chrono::microseconds(100);
  static constexpr int kPatientPolls = 4;

  /// What a wait whose time is up, or that of one who waits for this rank, has asked and learnt:
  /// see blame.cpp. Times are those since the wait began.
  struct Question {
    std::optional<Clock::duration> asked_at;    ///< last
    std::optional<Clock::duration> open_since;  ///< the first time after the last answer
    int times = 0;                              ///< since then
    std::uint64_t answers = 0;                  ///< ControlBlock::answers, as last seen

    void close() {
      open_since.reset();
      times = 0;
    }
  };
  /// Of a wait whose time is up, or the time of one that waits for this rank: see blame.cpp.
  struct Overdue {
    std::uint64_t asked_times = 0;  ///< ControlBlock::asked, as last seen
    std::optional<Clock::duration> is_up_since = {};
    std::optional<Clock::duration> asked_at = {};  ///< this rank, last
    Clock::duration asked_since{0};                ///< without a pause
    bool is_asked_in_node = false;                 ///< and has not answered
    std::vector<int> askers = {};                  ///< of other nodes, that have no answer yet
    std::unordered_map<int, Question> questions = {};
  };

  [[noreturn]] void throw_failure() const;
  static Clock::duration deadline_of(const Settings& settings);
  static int polls_before_slow(const NodeMemory& memory, const Topology& topology);
  void slow(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
            Clock::duration progress_every);
  void pause(Clock::duration waited, FunctionRef<bool()> ready, bool is_handshake);
  void sleep(FunctionRef<bool()> ready, std::chrono::nanoseconds limit);
  [[nodiscard]] bool is_patient() const {
    return is_beside_ && patience_->waiters.load(std::memory_order_relaxed) == 0;
  }
  void give_up();
  [[noreturn]] void interrupt();
  /// Beside a computing thread, on one node, the application's messages are left to that thread.
  [[nodiscard]] bool drives_transport() const {
    return transport_ != nullptr && (!is_beside_ || topology_.num_nodes() > 1);
  }
  void wake_sleepers();
  void read_notices(std::optional<Clock::duration> waited = {});
  void check_leavers(FunctionRef<std::vector<int>()> missing);
  void check_processes(FunctionRef<std::vector<int>()> missing);
  [[nodiscard]] bool is_asked(Clock::duration waited);
  [[nodiscard]] bool is_asked_again() const;
  void be_asked(Clock::duration waited);
  void end_overdue(const std::vector<int>& missing, Clock::duration waited, bool is_terminating);
  void answer();
  void look_for_answer(int rank, Question& question) const;
  void ask(const std::vector<int>& missing, Clock::duration waited, Clock::duration ask_every);
  [[nodiscard]] std::string observations(const std::vector<int>& missing) const;
  void tell_other_nodes(const Notice& notice) noexcept;
  [[nodiscard]] std::uint64_t left_of_node() const;
  [[nodiscard]] std::uint64_t left_of(int rank) const;
  void warn(FunctionRef<std::vector<int>()> missing, Clock::duration waited) const;
  [[nodiscard]] std::string call_name() const;
  [[nodiscard]] bool terminating() const {
    return stop_ != nullptr && stop_->load(std::memory_order_relaxed) == Stop::terminating;
  }
  [[noreturn]] void expire(const std::vector<int>& missing, Clock::duration waited,
                           bool is_terminating);

  const NodeMemory& memory_;
  const Topology& topology_;
  Transport* transport_;
  Clock::duration deadline_;  ///< the largest duration for none
  Clock::duration warn_after_;
  Clock::duration grace_;
  Clock::duration spin_;
  Clock::duration yield_;  ///< after it
  int fast_polls_;         ///< before the first look at the clock
  Log log_;
  const CallInProgress* call_ = nullptr;
  bool sender_may_leave_ = false;
  const FunctionRef<void()>* poll_ = nullptr;
  Overdue overdue_;
  const StopFlag* stop_ = nullptr;
  const Observer* observer_ = nullptr;
  const Patience* patience_ = nullptr;
  bool is_beside_ = false;                                 ///< a thread that computes
  Clock::time_point looked_at_{};                          ///< by check_peers()
  std::unordered_map<int, std::uint64_t> left_elsewhere_;  ///< ranks of other nodes that left
  std::unordered_map<int, std::uint64_t> nodes_left_;      ///< nodes of which all ranks have left
};

}  // namespace tutti::collectives
