// SPDX-License-Identifier: Apache-2.0
// Collective calls that go on while the program computes, in whatever order each rank makes them.
//
// The program's thread puts jobs into queues and goes on. They are carried out, with the engine
// that there is, by whichever thread drives: a helper thread of the rank while the program
// computes, or a thread of the program that waits for them. While the queues are empty nobody
// drives, and the program has the engine to itself. So one thread at a time uses the engine, and
// MPI.
//
//   program   push_async(a)  push_async(b)  compute ...............  pull(a)
//                  |              |                                    ^
//   queues         a              b                                    | a is done
//                  |              |                                    |
//   driver         +-- round: what do all ranks have? -- batch: a, b --+-- round -- ...
//
// Nobody coordinates. A round is an allreduce of one byte per queue, which is the number of the
// rank if it has no job there. The minimum says whether all have one, and else who has none. So all
// ranks know the same, sort by priority and queue, and carry out the first jobs, as many as the
// link takes in about 10 ms, as one call. A rank takes part in rounds as long as it has jobs. Where
// ranks have none in common, they look again after a nap.
//
// A job that the link takes much longer for may go in slices of about 10 ms, one after each round.
// So more urgent jobs overtake it on its way. Where there is one queue, slices take eight times as
// long: jobs of one queue have an order, so none overtakes.
//
// What fails on all ranks alike and takes the same jobs from all queues is an error of these jobs
// alone. Of several, each is then carried out by itself, so that those that have no part in the
// error are done. Anything else fails the group: queues that are out of step would pair the wrong
// jobs.
//
// While the program's thread computes, the helper does not spin: it sleeps where other ranks wake
// it, and naps between looks at messages, about as long as what is under way takes. In a node whose
// cores all have a rank there is no idle time to hide anything in, so the helper leaves the jobs
// of some milliseconds to the thread that will wait for them.
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

/// One rank's end of a group's asynchronous calls: who drives.
class AsyncCalls {
 public:
  AsyncCalls(collectives::Engine& engine, const Settings& settings);
  /// After close().
  ~AsyncCalls() = default;
  AsyncCalls(const AsyncCalls&) = delete;
  AsyncCalls& operator=(const AsyncCalls&) = delete;

  /// Gives up what is under way, which fails the group, and joins the thread. Nothing but
  /// has_engine may be called afterwards.
  void close();

  /// Clients are added in the same order on all ranks; where they are not, the next round is a
  /// mismatch. Returns when nothing is under way: then no rank makes a round in which this client
  /// is unknown to another.
  std::size_t add(AsyncClient& client);
  /// A call that the client still has is given up with a warning, and fails the group; unless it is
  /// complete before that is noticed. Ranks may remove clients at different times, while others go
  /// on.
  void remove(std::size_t client);

  /// See park_async_calls().
  void park(bool tells_others) noexcept;

  using Placed = PlacedJob;
  /// Appends jobs to queues of a client. Local, returns at once. Errors: what the group failed
  /// with; out_of_memory if the helper thread cannot be made.
  void submit(std::size_t client, std::vector<Placed>&& jobs);

  /// True if slices give the bits of the whole.
  [[nodiscard]] bool may_slice() const;

  /// Counts what the program has waited until now. While nothing is under way.
  void settle() noexcept;

  /// Returns when a queue has no jobs, or none has. Local, but what it waits for is collective.
  /// Errors: invalid_argument on the thread that drives, in an updater.
  void await_queue(std::size_t client, std::size_t queue);
  void await_all();

  /// True if this thread may use the engine now: it drives, or there are no jobs.
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
  void say_given_up(const char* what, const std::string& calls) const noexcept;
  template <class Ready>
  void await(const Ready& ready);
  template <class Ready>
  void drive_until(Lock& lock, const Ready& ready);
  template <class Ready>
  void watch_driver(Lock& lock, const Ready& ready);

  collectives::Engine& engine_;
  unsigned forks_ = num_forks();
  bool has_network_;
  bool begins_late_;  ///< the helper, because the program's threads have all cores
  std::shared_ptr<AsyncWaiting> waiting_;
  AsyncQueues queues_;
  AsyncRound round_;
  // The error that the driver fails with where there is no memory to say why.
  const std::string no_memory_text_;
  const std::exception_ptr no_memory_;

  // In the lock of the queues, until the thread:
  const char* why_given_up_ = "";
  bool ends_ = false;
  bool is_idle_ = true;     ///< the helper sleeps until it is woken
  bool is_driven_ = false;  ///< some thread has the engine
  std::thread helper_;
  std::atomic<std::thread::id> driver_{};
};

/// This process ends MPI. What is under way in asynchronous calls of its groups is given up, which
/// is said, and fails them; returns when no thread carries out calls any more, or after a moment.
/// `tells_others`: this alone, that the groups fail on all nodes; in turns of this thread.
void park_async_calls(bool tells_others) noexcept;

}  // namespace tutti
