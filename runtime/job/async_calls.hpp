// SPDX-License-Identifier: Apache-2.0
// AsyncCalls: collective calls in the background, which each rank may make in a different order.
//
// The program's thread puts jobs into queues and continues. They are carried out with the group's
// engine by the thread that drives: a helper thread of the rank while the program computes, or a
// thread of the program that waits for them. While the queues are empty, no thread drives, and the
// program has the engine to itself. So only one thread at a time uses the engine, and MPI.
//
//   program   push_async(a)  push_async(b)  compute ...............  pull(a)
//                  |              |                                    ^
//   queues         a              b                                    | a is done
//                  |              |                                    |
//   driver         +-- round: what do all ranks have? -- batch: a, b --+-- round -- ...
//
// There is no coordinator. A round is an allreduce of one byte per queue: the rank's number if it
// has no job in the queue, otherwise the largest value. The minimum tells whether all ranks have a
// job, or else which rank has none. So all ranks have the same information, sort by priority and
// queue, and carry out the first jobs as one call, as many as the link transfers in about 10 ms. A
// rank takes part in rounds while it has jobs. If the ranks have no jobs in common, they begin
// another round after a nap.
//
// A job that takes much longer on the link may be divided into slices of about 10 ms, one after
// each round, so that more urgent jobs can overtake it. If there is only one queue, slices are
// eight times as long: jobs of one queue are ordered, so none can overtake.
//
// An error that occurs on all ranks alike and takes the same jobs from all queues only concerns
// these jobs. If a batch had several, each of them is then carried out separately, so that jobs
// without the error complete. Any other error fails the group, because queues that no longer agree
// would pair the wrong jobs.
//
// While the program's thread computes, the helper does not spin: it sleeps where other ranks can
// wake it, and otherwise naps between polls for messages, about as long as the pending ones take.
// In a node where every core has a rank there is no idle time in which communication could be
// hidden, so the helper leaves the jobs for some milliseconds to a thread that will wait for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "runtime/base/forks.hpp"
#include "runtime/job/async_queues.hpp"
#include "runtime/job/async_round.hpp"
#include "runtime/job/async_state.hpp"

namespace tutti {

/// A rank's asynchronous calls in one group: decides which thread drives.
class AsyncCalls {
 public:
  AsyncCalls(collectives::Engine& engine, const Settings& settings);
  /// Requires close().
  ~AsyncCalls() = default;
  AsyncCalls(const AsyncCalls&) = delete;
  AsyncCalls& operator=(const AsyncCalls&) = delete;

  /// Gives up unfinished calls, which fails the group, and joins the helper thread. Only
  /// has_engine() may be called afterwards. Ends the process if an updater does not return within
  /// the deadline, as remove() does.
  void close();

  /// Adds a client, in the same order on all ranks; otherwise the next round is a mismatch. Returns
  /// when no call is pending, so that no rank makes a round in which another rank does not know the
  /// client.
  std::size_t add(AsyncClient& client);
  /// Removes a client. Its unfinished calls are given up with a warning, which fails the group,
  /// unless they complete before that is noticed. Ranks may remove clients at different times,
  /// while others continue.
  void remove(std::size_t client);

  /// See park_async_calls() and leave_idle_groups().
  void park(bool tells_others) noexcept;
  void leave_if_idle() noexcept;

  using Placed = PlacedJob;
  /// Appends jobs to queues of a client. Local; returns at once. Errors: the failure of the group;
  /// out_of_memory if the helper thread cannot be created.
  void submit(std::size_t client, std::vector<Placed>&& jobs);

  /// True if slices give the same bits as the whole.
  [[nodiscard]] bool may_slice() const;

  /// Counts the time that the program has waited so far. Requires that no call is pending.
  void settle() noexcept;

  /// Wait until a queue has no jobs, or no queue has. Local, although the jobs are collective.
  /// Errors: invalid_argument on the thread that drives, in an updater.
  void await_queue(std::size_t client, std::size_t queue);
  void await_all();

  /// True if this thread may use the engine now, because it drives, or there are no jobs.
  [[nodiscard]] bool has_engine() const { return queues_.size() == 0 || is_driver(); }
  [[nodiscard]] bool is_driver() const { return std::this_thread::get_id() == driver_.load(); }
  [[nodiscard]] const std::shared_ptr<AsyncWaiting>& waiting() const { return waiting_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = AsyncQueues::Lock;

  void start_helper();
  void help();
  void drive(Lock& lock, bool beside);
  void turn(bool beside) noexcept;
  void fail_destroyed() noexcept;
  void fail_for_good() noexcept;
  [[nodiscard]] std::string give_up(Lock& lock, const char* why);
  template <class Ready>
  void await_given_up(Lock& lock, const Ready& ready);
  [[noreturn]] void end_process() noexcept;
  void say_given_up(const char* what, const std::string& calls) const noexcept;
  template <class Ready>
  void await(const Ready& ready);
  template <class Ready>
  void drive_until(Lock& lock, const Ready& ready);
  template <class Ready>
  void watch_driver(Lock& lock, const Ready& ready);

  collectives::Engine& engine_;
  unsigned forks_ = num_forks();
  std::chrono::duration<double> timeout_;  ///< 0 for none
  bool has_network_;
  bool begins_late_;  ///< the helper begins late, because the program's threads use all cores
  std::shared_ptr<AsyncWaiting> waiting_;
  AsyncQueues queues_;
  AsyncRound round_;
  // The error of the driver if there is no memory to describe the actual one.
  const std::string no_memory_text_;
  const std::exception_ptr no_memory_;

  // Guarded by the lock of the queues, up to `helper_`:
  const char* why_given_up_ = "";
  bool ends_ = false;
  bool is_idle_ = true;     ///< the helper sleeps until it is woken
  bool is_driven_ = false;  ///< some thread uses the engine
  std::thread helper_;
  std::atomic<std::thread::id> driver_{};
};

/// Stops asynchronous calls because this process ends MPI. Pending calls of its groups are given
/// up, with a message, and their groups fail. Returns when no thread carries out calls any more, or
/// after a limited time. `tells_others`: only make the groups fail on all nodes, while this thread
/// has turns.
void park_async_calls(bool tells_others) noexcept;

/// Tells the other ranks of this process's groups, as destructors do, that it makes no more calls.
/// Leaves out groups with a call under way, because all ranks may have made that; a later call of
/// this function tells them.
void leave_idle_groups() noexcept;

}  // namespace tutti
