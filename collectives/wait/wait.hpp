// SPDX-License-Identifier: Apache-2.0
// Waiter: all waits for other ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
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

/// The urgency with which a process has been asked to stop. Only grows.
enum class Stop : std::uint32_t {
  none,
  requested,    ///< there is time to finish properly
  terminating,  ///< the process will be killed soon, and peers may have been killed
};

/// The stop request of a process. Set by a signal handler or by the program, read at every
/// announcement.
using StopFlag = std::atomic<Stop>;
static_assert(StopFlag::is_always_lock_free);

/// The function that waits call to learn whether they shall end, see set_interrupt_check(). There
/// is one per process, because the signal that it reports is the process's.
std::atomic<bool (*)() noexcept>& interrupt_check() noexcept;
/// Calls the interrupt check; false if none is set.
bool interrupted() noexcept;
inline constexpr auto kInterruptedEvery = std::chrono::milliseconds(50);

/// Shared state of a thread that makes calls in the background and the thread that computes: how
/// patiently the former waits.
struct Patience {
  /// Threads that wait for the calls to complete; if any, the calls do not spare the core.
  std::atomic<int> waiters{0};
  std::atomic<bool> is_given_up{false};    ///< ends the wait, and fails the group
  std::atomic<std::int64_t> nap{500'000};  ///< nanoseconds between polls for messages
};

/// Waits for other ranks, up to the deadline of the call. Failure decides what ends a wait early,
/// and Inquiry which rank is named when the deadline has passed.
///
/// A wait spins for some microseconds (if every rank of the host can have a core), then yields for
/// some milliseconds (for some microseconds where many ranks share a core), then sleeps on a futex
/// between polls. On a core that other programs want it sleeps instead of yielding, see CoreShare.
/// After about 10 microseconds it also drives the transport, because the missing rank may itself
/// wait for pending messages of the application. The deadline counts the time between polls, but at
/// most one second for each, so that a job that was suspended and resumed does not exceed it.
class Waiter {
 public:
  Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
         Transport* transport);

  /// Returns when `ready` returns true. `missing` lists the ranks that are waited for; it is called
  /// only late, to warn, to ask these ranks and to name them, and before each sleep. Errors:
  /// timeout; communication if this node failed or a missing rank has left.
  template <class Ready, class Missing>
  void until(Ready&& ready, Missing&& missing) {
    if (!soon(ready)) slow(ready, missing, Clock::duration::zero());
  }

  /// Waits as until() for messages, where `ready` drives the transport itself. Notices are then
  /// polled less often, because each such poll delays the messages.
  template <class Ready, class Missing>
  void until_messages(Ready&& ready, Missing&& missing) {
    if (!soon(ready)) slow(ready, missing, kNoticesEvery);
  }

  /// Polls for as long as most waits take. Returns true as soon as `ready` does; if it returns
  /// false, the caller goes on with until().
  template <class Ready>
  [[nodiscard]] bool soon(Ready&& ready) {
    for (int i = 0; i < (is_patient() ? kPatientPolls : fast_polls_); ++i) {
      if (ready()) return true;
      relax();
    }
    return false;
  }

  /// Allows waits to be given up from now on; null ends that. If the waits are made `beside` a
  /// thread that computes, they sleep at once, as long as nobody waits for them.
  void set_patience(const Patience* patience, bool beside) {
    patience_ = patience;
    is_beside_ = patience != nullptr && beside;
  }
  /// Wakes the thread that waits, if it sleeps, so that it reconsiders how to wait. Callable from
  /// any thread.
  void rouse() const { sleepers_.rouse(); }
  /// Wakes ranks of this node that sleep until this one gives a signal. Call it after each signal.
  void wake() const { sleepers_.wake(); }
  /// Drives the application's messages, for a thread that waits in another way. Returns false if
  /// another thread does so.
  bool progress() {
    if (transport_ == nullptr || !transport_->may_progress()) return false;
    transport_->progress();
    return true;
  }
  /// Sets a function that every wait polls, for the messages of a collective between nodes.
  void set_poll(const FunctionRef<void()>* poll) { poll_ = poll; }

  /// Sets the flag of stop requests, null to end that. Once it says `terminating`, calls wait for
  /// Settings::grace only.
  void watch(const StopFlag* stop) { stop_ = stop; }
  /// Sets a function that long waits call twice a second with what this rank does, such as "waits
  /// in push of key 3 (call 17) for 3.2 s", for ranks that wait for it in other groups: they learn
  /// it by answer_elsewhere() of those. Null ends that.
  void set_other_groups(const std::function<void(const std::string&)>* tell) {
    other_groups_ = tell;
  }
  /// Answers those that ask for this rank, which is in no call of this group, what it does instead,
  /// and handles other notices. Nothing happens during a call. No other thread may be in a call of
  /// the group. Errors: communication.
  void answer_elsewhere(const std::string& doing);
  /// For waits that do not go through this class: throws if this node has failed, and fails it if a
  /// process of it has ended. Most calls return at once, since it looks only at intervals.
  void check_peers();

  /// The following functions forward to Failure.
  void set_call(const CallInProgress* call) { failure_.set_call(call); }
  void let_sender_leave() { failure_.let_sender_leave(); }
  void set_observer(const Observer* observer) { failure_.set_observer(observer); }
  [[noreturn]] void fail(ErrorCode code, const std::string& text, bool reporter = true) {
    failure_.fail(code, text, reporter);
  }
  [[noreturn]] void fail(const LocalError& error) { failure_.fail(error); }
  bool raise_failure(ErrorCode code, const std::string& text, int reporter) {
    return failure_.raise_for(code, text, reporter);
  }
  void check_failure() const { failure_.check(); }
  [[nodiscard]] bool failed() const { return failure_.failed(); }
  void leave(std::uint64_t last_sequence, bool by_exception) {
    failure_.leave(last_sequence, by_exception);
  }

  [[nodiscard]] const Log& log() const { return log_; }
  /// Returns the time by the clock of this rank, which is simulated in a simulation.
  [[nodiscard]] std::chrono::steady_clock::time_point now() const {
    return memory_.pace == nullptr ? Clock::now() : memory_.pace->now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kNoticesEvery = std::chrono::microseconds(100);
  static constexpr int kPatientPolls = 4;

  /// What other groups see of a wait, and when that is brought up to date.
  struct ShownWait {
    Clock::duration next;
    std::optional<LongWaits::Shown> words;
  };

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
  /// True if this wait drives the transport. On one node the thread that computes and the one that
  /// made the group do that instead.
  [[nodiscard]] bool drives_transport() const {
    if (transport_ == nullptr) return false;
    return topology_.num_nodes() > 1 || (!is_beside_ && transport_->may_progress());
  }
  /// True if the transport is driven less often, because that may yield, as some MPIs do where
  /// ranks share cores.
  [[nodiscard]] bool spares_progress() const {
    return core_.was_wanted() && topology_.num_nodes() == 1;
  }
  void read_notices(std::optional<Clock::duration> waited = {});
  void warn(FunctionRef<std::vector<int>()> missing, Clock::duration waited) const;
  void show(ShownWait& shown, Clock::duration waited) const;
  [[nodiscard]] bool terminating() const {
    return stop_ != nullptr && stop_->load(std::memory_order_relaxed) == Stop::terminating;
  }

  const NodeMemory& memory_;
  const Topology& topology_;
  Transport* transport_;
  const Inquiry::Limits limits_;
  Clock::duration warn_after_;
  Clock::duration show_after_;
  Clock::duration spin_;
  Clock::duration yield_;  ///< duration of yielding, after spinning
  int fast_polls_;         ///< number of polls before the clock is first read
  Log log_;
  CoreShare core_;
  Sleepers sleepers_;
  Failure failure_;
  Inquiry inquiry_;
  const FunctionRef<void()>* poll_ = nullptr;
  const StopFlag* stop_ = nullptr;
  const std::function<void(const std::string&)>* other_groups_ = nullptr;
  const Patience* patience_ = nullptr;
  bool is_beside_ = false;         ///< waits are made beside a thread that computes
  Clock::time_point looked_at_{};  ///< the last time that check_peers() did anything
};

/// Makes the waiter's messages name the call during its lifetime.
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

/// Makes every wait also call `poll` during its lifetime, unless that is null.
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
