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
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "runtime/base/forks.hpp"
#include "runtime/job/async_state.hpp"

namespace tutti {

/// One thing that all ranks do together: the push of one key, for example. Queues own it.
struct AsyncJob {
  virtual ~AsyncJob() = default;
  int priority = 0;
  std::size_t bytes = 0;    ///< that cross between ranks, about
  bool is_alone = false;    ///< a batch of its own; equal on all ranks
  bool has_slices = false;  ///< may go in slices, if it is large; equal on all ranks
  std::size_t done = 0;     ///< bytes of slices that are done
  std::shared_ptr<AsyncState> state;
  collectives::AsyncTimes times{.submitted = collectives::ticks()};
};

/// Who can carry out jobs: a store. It has queues with the same numbers and meanings on all ranks,
/// and their number changes only while nothing is under way.
class AsyncClient {
 public:
  virtual ~AsyncClient() = default;
  [[nodiscard]] virtual std::size_t queues() const = 0;
  /// A queue in messages: "key 3".
  [[nodiscard]] virtual std::string name_of_queue(std::size_t queue) const = 0;
  /// Carries out the first job of each of these queues as one call, on the thread that drives.
  /// Collective. Where it throws what leaves the group usable, nothing has changed, and each of
  /// several jobs is carried out once more, by itself.
  virtual void carry_out(std::span<AsyncJob* const> jobs) = 0;
  /// Carries out the next slice of a job, from job.done on, and with the last what is left to do
  /// for the whole. Collective. What it throws ends the job, on all ranks.
  virtual void carry_slice(AsyncJob& job, std::size_t bytes) = 0;
};

/// How waits of the engine are while this lives: see Waiter::set_patience().
class Patiently {
 public:
  Patiently(collectives::Engine& engine, const collectives::Patience& patience, bool beside)
      : engine_(engine) {
    engine_.set_patience(&patience, beside);
  }
  ~Patiently() { engine_.set_patience(nullptr, false); }
  Patiently(const Patiently&) = delete;
  Patiently& operator=(const Patiently&) = delete;

 private:
  collectives::Engine& engine_;
};

/// In a round: this rank has a job in the queue. Without one it gives its number, if that is less.
inline constexpr std::uint8_t kHasJob = 255;
inline constexpr int kLastNamed = 253;  ///< of the ranks that a round can name
inline constexpr std::uint8_t kSomeRank = 254;

/// The queues and the helper thread of one rank's end of a group.
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
  /// What the client still has is given up with a warning, and fails the group; unless it is
  /// complete before that is noticed. Ranks may remove clients at different times, while others go
  /// on.
  void remove(std::size_t client);

  /// See park_async_calls().
  void park(bool tells_others) noexcept;

  /// A job and its queue.
  struct Placed {
    std::size_t queue;
    std::unique_ptr<AsyncJob> job;
  };
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
  [[nodiscard]] bool has_engine() const { return jobs_.load() == 0 || is_driver(); }
  [[nodiscard]] bool is_driver() const { return std::this_thread::get_id() == driver_.load(); }
  [[nodiscard]] const std::shared_ptr<AsyncWaiting>& waiting() const { return waiting_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Queue = std::deque<std::unique_ptr<AsyncJob>>;
  struct Client {
    AsyncClient* client;       ///< null once it is gone
    bool is_dropped = false;   ///< gone on all ranks, which count it no more
    bool is_given_up = false;  ///< what it has in its queues
    std::vector<Queue> queues{};
  };
  struct Place {
    std::size_t client;
    std::size_t queue;
  };

  void open();
  void start_helper();
  [[nodiscard]] static bool has_jobs(const Client& client);
  [[nodiscard]] std::string give_up(std::unique_lock<std::mutex>& lock, const char* why);
  void keep_if_complete();
  void say_given_up(const char* what, const std::string& calls) const noexcept;
  void help();
  void drive(std::unique_lock<std::mutex>& lock, bool beside);
  void turn();
  /// One round and what follows from it. False if the ranks have no jobs in common.
  bool take_turn();
  void fail_for_good();
  std::vector<std::uint8_t> own_counts();
  void meet(std::vector<std::uint8_t>& counts);
  [[nodiscard]] std::uint64_t digest();
  void drop_gone(std::span<const std::uint8_t> counts);
  struct Batch {
    std::vector<Place> places{};
    std::size_t slice = 0;  ///< bytes of the only job; 0: all of every job
  };
  Batch choose(std::span<const std::uint8_t> counts);
  void note(AsyncJob& job, std::uint8_t count, std::uint64_t now) const;
  void begin_step();
  void tell_step();
  void carry_out(const Batch& batch);
  void carry_out_apart(std::span<const Place> batch);
  void confirm(std::span<const Place> batch);
  /// Failures are numbered in the order in which they come, which is the same on all ranks.
  void end(std::span<const Place> batch, const std::exception_ptr& error);
  std::uint64_t count_waits();
  void fail_all(const std::exception_ptr& error);
  [[noreturn]] void expire(std::vector<std::uint8_t> own);
  std::string describe_missing(std::span<const std::uint8_t> all);
  void learn_speed(std::size_t bytes, Clock::duration time);
  void napped_in_vain(Clock::time_point begin);
  [[nodiscard]] std::string describe_ready();
  [[nodiscard]] std::string ready_in_words() const;
  [[nodiscard]] std::string describe(std::span<const Place> batch);
  [[nodiscard]] std::string in_words(std::span<const Place> batch) const;
  [[nodiscard]] std::string name_of(const Place& place) const;
  [[nodiscard]] Queue& at(const Place& place) { return clients_[place.client].queues[place.queue]; }
  template <class Ready>
  void await(const Ready& ready);
  template <class Ready>
  void drive_until(std::unique_lock<std::mutex>& lock, const Ready& ready);
  template <class Ready>
  void watch_driver(std::unique_lock<std::mutex>& lock, const Ready& ready);

  collectives::Engine& engine_;
  unsigned forks_ = num_forks();
  Clock::duration deadline_;  ///< the largest duration for none
  bool has_network_;
  bool begins_late_;  ///< the helper, because the program's threads have all cores
  double bytes_per_second_;
  std::shared_ptr<AsyncWaiting> waiting_;

  std::mutex mutex_;              ///< what follows, until the thread
  std::condition_variable came_;  ///< jobs, or the end
  std::condition_variable done_;  ///< jobs are
  std::vector<Client> clients_;
  std::atomic<std::size_t> jobs_{0};
  std::uint64_t submissions_ = 0;
  std::exception_ptr failure_;  ///< of the group
  std::uint64_t failures_ = 0;  ///< of batches, so far
  const char* why_given_up_ = "";
  bool ends_ = false;
  bool is_idle_ = true;     ///< the helper sleeps until it is woken
  bool is_driven_ = false;  ///< some thread has the engine
  std::thread helper_;
  std::atomic<std::thread::id> driver_{};
  collectives::AsyncStep step_{};  ///< under way, or the last one until it is told
  bool is_beside_ = false;         ///< who drives is the helper, beside a thread that computes
  Clock::duration in_vain_{0};     ///< how long the ranks have had no jobs in common
  Clock::duration asked_at_{0};    ///< of in_vain_: when it was last asked whether to go on
};

/// This process ends MPI. What is under way in asynchronous calls of its groups is given up, which
/// is said, and fails them; returns when no thread carries out calls any more, or after a moment.
/// `tells_others`: this alone, that the groups fail on all nodes; in turns of this thread.
void park_async_calls(bool tells_others) noexcept;

}  // namespace tutti
