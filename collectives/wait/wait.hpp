// SPDX-License-Identifier: Apache-2.0
// The one way to wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "collectives/job/function_ref.hpp"
#include "collectives/job/relax.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/wait/core_share.hpp"
#include "collectives/wait/failure.hpp"
#include "collectives/wait/inquiry.hpp"
#include "collectives/wait/log.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/sleepers.hpp"
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

/// The function that waits ask whether they shall end: see set_interrupt_check(). One per process,
/// because what it tells of, a signal, is the process's.
std::atomic<bool (*)() noexcept>& interrupt_check() noexcept;
/// Its answer; false if nobody is asked.
bool interrupted() noexcept;
inline constexpr auto kInterruptedEvery = std::chrono::milliseconds(50);

/// How a thread waits that makes calls beside one that computes. Shared with the one that computes.
struct Patience {
  std::atomic<int> waiters{0};  ///< threads that wait for the calls; if any, no core is spared
  std::atomic<bool> is_given_up{false};    ///< the wait ends, and fails the group
  std::atomic<std::int64_t> nap{500'000};  ///< nanoseconds between looks at messages
};

/// Waits for other ranks, with the deadline of the call. What ends a wait early is Failure's, and
/// whom to name when its time is up, Inquiry's.
///
/// How a wait goes: spin for some microseconds (if every rank of the host can have a core), then
/// yield for some milliseconds (of many ranks on a core, for some microseconds), then sleep on
/// a futex between polls. A wait on a core that other programs want sleeps instead of yielding: see
/// CoreShare. After about 10 microseconds it also drives the transport, because the application's
/// own pending messages may be what the missing rank waits for. The deadline counts time spent
/// polling, at most one second per poll, so that a job that was suspended and resumed does not
/// expire.
class Waiter {
 public:
  Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
         Transport* transport);

  /// Returns when `ready` does. `missing` lists the ranks waited for; it is called late, to warn,
  /// to ask them and to name them, and before each sleep. Errors: timeout; communication if this
  /// node failed or a missing rank has left.
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
  /// Wakes the thread that waits here, if it sleeps, to look again how to wait. Any thread.
  void rouse() const { sleepers_.rouse(); }
  /// Wakes ranks of this node that sleep until this one gives a signal; call it after each.
  void wake() const { sleepers_.wake(); }
  /// Lets the application's messages move, from a thread that waits in another way. False if that
  /// is left to another thread.
  bool progress() {
    if (transport_ == nullptr || !transport_->may_progress()) return false;
    transport_->progress();
    return true;
  }
  /// Something to poll in every wait: the messages of a collective between nodes.
  void set_poll(const FunctionRef<void()>* poll) { poll_ = poll; }

  /// Once this flag says that the process is terminating, calls wait for Settings::grace only. Null
  /// to end that.
  void watch(const StopFlag* stop) { stop_ = stop; }
  /// For waits that are not made here: throws if this node has failed, and fails it if a process of
  /// it has ended. Looks no more often than is worth its while.
  void check_peers();

  /// The following are Failure's.
  void set_call(const CallInProgress* call) { failure_.set_call(call); }
  void let_sender_leave() { failure_.let_sender_leave(); }
  void set_observer(const Observer* observer) { failure_.set_observer(observer); }
  [[noreturn]] void fail(ErrorCode code, const std::string& text, bool reporter = true) {
    failure_.fail(code, text, reporter);
  }
  [[noreturn]] void fail(const LocalError& error) { failure_.fail(error); }
  bool raise_failure(ErrorCode code, const std::string& text) { return failure_.raise(code, text); }
  void check_failure() const { failure_.check(); }
  [[nodiscard]] bool failed() const { return failure_.failed(); }
  void leave(std::uint64_t last_sequence, bool by_exception) {
    failure_.leave(last_sequence, by_exception);
  }

  [[nodiscard]] const Log& log() const { return log_; }
  /// The time by which this rank waits.
  [[nodiscard]] std::chrono::steady_clock::time_point now() const {
    return memory_.pace == nullptr ? Clock::now() : memory_.pace->now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kNoticesEvery = std::chrono::microseconds(100);
  static constexpr int kPatientPolls = 4;

  void slow(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
            Clock::duration progress_every);
  void pause(Clock::duration waited, FunctionRef<bool()> ready,
             FunctionRef<std::vector<int>()> missing, bool is_handshake);
  [[nodiscard]] std::chrono::nanoseconds patient_sleep(Clock::duration waited,
                                                       bool is_handshake) const;
  void yield();
  [[nodiscard]] bool is_patient() const {
    return is_beside_ && patience_->waiters.load(std::memory_order_relaxed) == 0;
  }
  void give_up();
  [[noreturn]] void interrupt();
  /// On one node the application's messages are left to the thread that computes, and to the one
  /// that made the group.
  [[nodiscard]] bool drives_transport() const {
    if (transport_ == nullptr) return false;
    return topology_.num_nodes() > 1 || (!is_beside_ && transport_->may_progress());
  }
  /// A look at messages may yield, as some MPIs do where ranks share cores.
  [[nodiscard]] bool spares_progress() const {
    return core_.was_wanted() && topology_.num_nodes() == 1;
  }
  void read_notices(std::optional<Clock::duration> waited = {});
  void warn(FunctionRef<std::vector<int>()> missing, Clock::duration waited) const;
  [[nodiscard]] bool terminating() const {
    return stop_ != nullptr && stop_->load(std::memory_order_relaxed) == Stop::terminating;
  }

  const NodeMemory& memory_;
  const Topology& topology_;
  Transport* transport_;
  const Inquiry::Limits limits_;
  Clock::duration warn_after_;
  Clock::duration spin_;
  Clock::duration yield_;  ///< after it
  int fast_polls_;         ///< before the first look at the clock
  Log log_;
  CoreShare core_;
  Sleepers sleepers_;
  Failure failure_;
  Inquiry inquiry_;
  const FunctionRef<void()>* poll_ = nullptr;
  const StopFlag* stop_ = nullptr;
  const Patience* patience_ = nullptr;
  bool is_beside_ = false;         ///< waits are made beside a thread that computes
  Clock::time_point looked_at_{};  ///< by check_peers()
};

/// While it lives, messages of the waiter name the call.
class NamedCall {
 public:
  NamedCall(Waiter& waiter, const CallInProgress& call) : waiter_(waiter), call_(call) {
    waiter_.set_call(&call_);
  }
  ~NamedCall() { waiter_.set_call(nullptr); }
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;

 private:
  Waiter& waiter_;
  CallInProgress call_;
};

/// While it lives, every wait also calls `poll`, unless that is null.
class PollGuard {
 public:
  PollGuard(Waiter& waiter, const FunctionRef<void()>* poll) : waiter_(waiter) {
    waiter_.set_poll(poll);
  }
  ~PollGuard() { waiter_.set_poll(nullptr); }
  PollGuard(const PollGuard&) = delete;
  PollGuard& operator=(const PollGuard&) = delete;

 private:
  Waiter& waiter_;
};

}  // namespace tutti::collectives
