// SPDX-License-Identifier: Apache-2.0
// AsyncQueues: the queues of asynchronous calls, and the choice of the next jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "runtime/job/async_state.hpp"

namespace tutti {

/// A unit of work that all ranks do together, such as the push of one key. It is owned by a queue.
struct AsyncJob {
  virtual ~AsyncJob() = default;
  int priority = 0;
  std::size_t bytes = 0;    ///< bytes that cross between ranks, approximately
  bool is_alone = false;    ///< needs a batch of its own; equal on all ranks
  bool has_slices = false;  ///< may be cut into slices if it is large; equal on all ranks
  std::size_t done = 0;     ///< bytes of completed slices
  std::shared_ptr<AsyncState> state;
  collectives::AsyncTimes times{.submitted = collectives::ticks()};
};

/// The owner of queues, such as a store, which carries out their jobs. Queues have the same numbers
/// and meanings on all ranks, and their number only changes while no call is pending.
class AsyncClient {
 public:
  virtual ~AsyncClient() = default;
  [[nodiscard]] virtual std::size_t queues() const = 0;
  /// Returns the name of a queue for messages, such as "key 3".
  [[nodiscard]] virtual std::string name_of_queue(std::size_t queue) const = 0;
  /// Carries out the first job of each of these queues as one call, on the thread that drives.
  /// Collective. If it throws an error that leaves the group usable, it must have changed nothing,
  /// and each of several jobs is then carried out again separately.
  virtual void carry_out(std::span<AsyncJob* const> jobs) = 0;
  /// Carries out the next slice of a job, beginning at job.done, and after the last slice the
  /// remaining work for the whole. Collective. An exception ends the job, on all ranks.
  virtual void carry_slice(AsyncJob& job, std::size_t bytes) = 0;
};

/// A queue of a client. Both numbers have the same meaning on all ranks.
struct AsyncQueue {
  std::size_t client;
  std::size_t queue;
};

/// A job and the number of its queue in the client.
struct PlacedJob {
  std::size_t queue;
  std::unique_ptr<AsyncJob> job;
};

/// A batch: the first jobs of these queues, which are carried out as one call.
struct AsyncBatch {
  std::vector<AsyncQueue> queues{};
  std::size_t slice = 0;  ///< bytes to take of the only job; 0: each job as a whole
};

/// The first job of a queue in which all ranks have one. The members are those of AsyncJob.
struct CommonJob {
  AsyncQueue queue;
  int priority = 0;
  std::size_t bytes = 0;
  std::size_t done = 0;
  bool is_alone = false;
  bool has_slices = false;
};

/// Chooses the next batch, from values that are the same on all ranks. A call has at most `most`
/// bytes. All jobs are of one client, because they become one call.
AsyncBatch choose_batch(std::vector<CommonJob> common, std::size_t most, bool is_only_queue);

/// Value in a round of a rank with a job in the queue. Without a job it is the rank's number, up to
/// kSomeRank.
inline constexpr std::uint8_t kHasJob = 255;
inline constexpr int kLastNamed = 253;  ///< the largest rank that a round can name
inline constexpr std::uint8_t kSomeRank = 254;
/// Bytes of a round after the counts: the size of a batch, and 0 if a rank has waited for too long.
inline constexpr std::size_t kExtraBytes = 2;

/// The clients of a group and their jobs. Shared by the program's threads and the one that carries
/// out calls.
class AsyncQueues {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit AsyncQueues(const collectives::Topology& topology) : topology_(topology) {}

  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  /// Condition variables: for threads that wait for new jobs or for the end, and for threads that
  /// wait until jobs are done.
  std::condition_variable& came() { return came_; }
  std::condition_variable& done() { return done_; }
  /// Returns the number of unfinished jobs. Needs no lock.
  [[nodiscard]] std::size_t size() const { return size_.load(); }

  /// The following functions, up to in_words(), require the lock().
  std::size_t add(AsyncClient& client);
  /// Removes a client. Other ranks count its queues until they remove it, too.
  void remove(std::size_t client);
  /// Appends all jobs, or none. Errors: the failure of the group.
  void put(std::size_t client, std::vector<PlacedJob>&& jobs);
  /// Returns the number of calls of put() so far.
  [[nodiscard]] std::uint64_t submissions() const { return submissions_; }
  [[nodiscard]] bool has_jobs(std::size_t client) const;
  [[nodiscard]] bool is_empty(AsyncQueue place) const;
  /// Marks the jobs of clients for which nobody can wait any more. Until they are done,
  /// has_given_up() is true.
  void give_up(std::size_t client) { clients_[client].is_given_up = true; }
  void give_up_all();
  [[nodiscard]] bool has_given_up() const;
  /// Returns a text such as "push of key 3, push of key 5 and 7 more", or "none". May throw
  /// bad_alloc.
  [[nodiscard]] std::string in_words() const;

  /// The following functions take the lock. counts() returns for each client whether it is removed,
  /// and the value of each queue.
  [[nodiscard]] std::vector<std::uint8_t> counts();
  /// Returns a digest of the queues' meanings, which differs on ranks whose counts are about other
  /// queues.
  [[nodiscard]] std::uint64_t digest();
  /// Forgets clients that all ranks have removed; they are in no later round of any rank.
  void drop_gone(std::span<const std::uint8_t> counts);
  /// Returns the jobs that all ranks have, according to the minimum of all counts. `waited_for`:
  /// the rank that came last to the round.
  [[nodiscard]] std::vector<CommonJob> common(std::span<const std::uint8_t> counts, int waited_for);
  /// Returns the earliest submission time of the jobs at the heads of their queues, or `now` if
  /// there are none.
  [[nodiscard]] std::uint64_t first_submitted(std::uint64_t now);
  /// Returns the jobs of a batch, and sets their client.
  [[nodiscard]] std::vector<AsyncJob*> jobs_of(const AsyncBatch& batch, AsyncClient*& client);
  /// Ends the jobs of a batch. Jobs are destroyed before anybody sees them complete, because they
  /// refer to the program's data. Failures are numbered in their order, which is the same on all
  /// ranks. The jobs are counted in `step` before anybody who waits for them reads it.
  void end(std::span<const AsyncQueue> batch, const std::exception_ptr& error,
           collectives::AsyncStep& step);
  /// Fails all jobs, and with `is_for_good` all later ones. Allocates no memory.
  void fail_all(const std::exception_ptr& error, bool is_for_good) noexcept;
  [[nodiscard]] std::string describe_ready();
  [[nodiscard]] std::string describe(std::span<const AsyncQueue> batch);
  /// Describes the missing jobs. `all` has counts() and the extra bytes of each rank.
  [[nodiscard]] std::string describe_missing(std::span<const std::uint8_t> all);

 private:
  using Jobs = std::deque<std::unique_ptr<AsyncJob>>;
  struct Client {
    AsyncClient* client;       ///< null once it is removed
    bool is_dropped = false;   ///< removed on all ranks, and no longer counted
    bool is_given_up = false;  ///< its jobs are given up
    std::vector<Jobs> queues{};
  };

  void fail(Jobs& queue, const std::exception_ptr& error) noexcept;
  [[nodiscard]] Jobs& at(AsyncQueue place) { return clients_[place.client].queues[place.queue]; }
  [[nodiscard]] std::string in_words(std::span<const AsyncQueue> batch) const;
  [[nodiscard]] std::string name_of(AsyncQueue place) const;

  const collectives::Topology& topology_;
  std::mutex mutex_;  ///< guards the following members
  std::condition_variable came_;
  std::condition_variable done_;
  std::vector<Client> clients_;
  std::atomic<std::size_t> size_{0};
  std::uint64_t submissions_ = 0;
  std::exception_ptr failure_;  ///< the failure of the group
  std::uint64_t failures_ = 0;  ///< number of failed batches so far
};

}  // namespace tutti
