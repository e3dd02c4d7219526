// SPDX-License-Identifier: Apache-2.0
// The queues of asynchronous calls: what a rank has put into them, and which jobs come next.
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

/// A queue of a client. Both numbers mean the same on all ranks.
struct AsyncQueue {
  std::size_t client;
  std::size_t queue;
};

/// A job and its queue, of one client.
struct PlacedJob {
  std::size_t queue;
  std::unique_ptr<AsyncJob> job;
};

/// The first jobs of these queues, which become one call.
struct AsyncBatch {
  std::vector<AsyncQueue> queues{};
  std::size_t slice = 0;  ///< bytes of the only job; 0: all of every job
};

/// The first job of a queue, where all ranks have one.
struct CommonJob {
  AsyncQueue queue;
  int priority = 0;
  std::size_t bytes = 0;
  std::size_t done = 0;  ///< as AsyncJob has them
  bool is_alone = false;
  bool has_slices = false;
};

/// The batch that comes next: the same on all ranks, because all it looks at is. `most` bytes go as
/// one call. Of one client, because its jobs become one call.
AsyncBatch choose_batch(std::vector<CommonJob> common, std::size_t most, bool is_only_queue);

/// In a round: this rank has a job in the queue. Without one it gives its number, if that is less.
inline constexpr std::uint8_t kHasJob = 255;
inline constexpr int kLastNamed = 253;  ///< of the ranks that a round can name
inline constexpr std::uint8_t kSomeRank = 254;
/// After the counts, a round has two bytes more: how much is one batch, and 0 if a rank has waited
/// for too long.
inline constexpr std::size_t kExtraBytes = 2;

/// The clients of a group and their jobs. Shared by the program's threads and the one that carries
/// out calls.
class AsyncQueues {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit AsyncQueues(const collectives::Topology& topology) : topology_(topology) {}

  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  /// Who waits for jobs, or for the end, and who waits for jobs to be done.
  std::condition_variable& came() { return came_; }
  std::condition_variable& done() { return done_; }
  /// Jobs that are not done. Without a lock.
  [[nodiscard]] std::size_t size() const { return size_.load(); }

  /// The functions up to the next such line are called in lock().
  std::size_t add(AsyncClient& client);
  /// The client is gone. Other ranks count its queues as long as they have it.
  void remove(std::size_t client);
  /// All of them, or none. Errors: what the group failed with.
  void put(std::size_t client, std::vector<PlacedJob>&& jobs);
  /// How many calls of put() there were.
  [[nodiscard]] std::uint64_t submissions() const { return submissions_; }
  [[nodiscard]] bool has_jobs(std::size_t client) const;
  [[nodiscard]] bool is_empty(AsyncQueue place) const;
  /// Nobody can wait any more for what clients have. Until that is done has_given_up() is true.
  void give_up(std::size_t client) { clients_[client].is_given_up = true; }
  void give_up_all();
  [[nodiscard]] bool has_given_up() const;
  /// "push of key 3, push of key 5 and 7 more"; "none". May throw bad_alloc.
  [[nodiscard]] std::string in_words() const;

  /// The functions that follow take the lock. For each client whether it is gone, and what each
  /// queue has.
  [[nodiscard]] std::vector<std::uint8_t> counts();
  /// Ranks whose counts are about other queues have another one.
  [[nodiscard]] std::uint64_t digest();
  /// Clients that all ranks have removed are in no later round of any rank.
  void drop_gone(std::span<const std::uint8_t> counts);
  /// The jobs that all ranks have, by the least counts of all. `waited_for`: the rank that came
  /// last to the round.
  [[nodiscard]] std::vector<CommonJob> common(std::span<const std::uint8_t> counts, int waited_for);
  /// When the first of the jobs was submitted that are the first of their queues; else `now`.
  [[nodiscard]] std::uint64_t first_submitted(std::uint64_t now);
  /// The jobs of a batch, and their client.
  [[nodiscard]] std::vector<AsyncJob*> jobs_of(const AsyncBatch& batch, AsyncClient*& client);
  /// Jobs are gone before anybody finds them complete: they refer to the program's data. Failures
  /// are numbered in the order in which they come, which is the same on all ranks. `step` counts
  /// the jobs, before anybody who waits for them looks at it.
  void end(std::span<const AsyncQueue> batch, const std::exception_ptr& error,
           collectives::AsyncStep& step);
  /// All jobs fail, and with `is_for_good` all that come later. Allocates nothing.
  void fail_all(const std::exception_ptr& error, bool is_for_good) noexcept;
  [[nodiscard]] std::string describe_ready();
  [[nodiscard]] std::string describe(std::span<const AsyncQueue> batch);
  /// `all`: what counts() and the extra bytes were on each rank.
  [[nodiscard]] std::string describe_missing(std::span<const std::uint8_t> all);

 private:
  using Jobs = std::deque<std::unique_ptr<AsyncJob>>;
  struct Client {
    AsyncClient* client;       ///< null once it is gone
    bool is_dropped = false;   ///< gone on all ranks, which count it no more
    bool is_given_up = false;  ///< what it has in its queues
    std::vector<Jobs> queues{};
  };

  void fail(Jobs& queue, const std::exception_ptr& error) noexcept;
  [[nodiscard]] Jobs& at(AsyncQueue place) { return clients_[place.client].queues[place.queue]; }
  [[nodiscard]] std::string in_words(std::span<const AsyncQueue> batch) const;
  [[nodiscard]] std::string name_of(AsyncQueue place) const;

  const collectives::Topology& topology_;
  std::mutex mutex_;  ///< what follows
  std::condition_variable came_;
  std::condition_variable done_;
  std::vector<Client> clients_;
  std::atomic<std::size_t> size_{0};
  std::uint64_t submissions_ = 0;
  std::exception_ptr failure_;  ///< of the group
  std::uint64_t failures_ = 0;  ///< of batches, so far
};

}  // namespace tutti
