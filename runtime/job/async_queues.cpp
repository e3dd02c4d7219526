// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_queues.hpp"

#include <algorithm>
#include <functional>
#include <new>

#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

// Even on a slow link slices are not smaller than this, because there would be too many rounds.
constexpr std::size_t kLeastSlice = std::size_t{64} << 10;
// Slices are longer by this factor if there is only one queue, so that no job can overtake: each
// slice has a round, during which the link is idle.
constexpr std::size_t kLongerIfAlone = 8;
constexpr std::size_t kMostQueuesNamed = 3;

/// Records the result of a round for a queue's first job. A rank without any job takes no part in
/// the round, so the others wait for it there.
void note(collectives::AsyncTimes& times, std::uint8_t count, std::uint64_t now, int waited_for) {
  if (count <= kLastNamed) times.last_rank = count;
  if (count != kHasJob || times.met != 0) return;
  times.met = now;
  if (times.last_rank < 0) times.last_rank = waited_for;
}

}  // namespace

AsyncBatch choose_batch(std::vector<CommonJob> common, std::size_t most, bool is_only_queue) {
  if (common.empty()) return {};
  std::ranges::stable_sort(common, std::greater(), &CommonJob::priority);
  const CommonJob& first = common.front();
  const std::size_t slice = std::max(most, kLeastSlice) * (is_only_queue ? kLongerIfAlone : 1);
  if (first.has_slices && (first.done > 0 || first.bytes > 2 * slice)) {
    return {{first.queue}, std::min(slice, first.bytes - first.done)};
  }
  AsyncBatch batch;
  std::size_t bytes = 0;
  for (const CommonJob& job : common) {
    if (job.queue.client != first.queue.client) continue;
    bytes += job.bytes;
    // A part of its sum has been written already.
    const bool is_apart = job.is_alone || job.done > 0;
    if (!batch.queues.empty() && (bytes > most || is_apart)) break;
    batch.queues.push_back(job.queue);
    if (job.is_alone) break;
  }
  return batch;
}

// --- functions that require the lock -------------------------------------------------------------

std::size_t AsyncQueues::add(AsyncClient& client) {
  clients_.push_back({&client});
  return clients_.size() - 1;
}

void AsyncQueues::remove(std::size_t client) {
  Client& gone = clients_[client];
  // The other ranks still count them.
  gone.queues.resize(std::max(gone.queues.size(), gone.client->queues()));
  gone.client = nullptr;
}

void AsyncQueues::put(std::size_t client, std::vector<PlacedJob>&& jobs) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  std::vector<Jobs>& queues = clients_[client].queues;
  std::size_t put = 0;
  try {
    for (auto& [queue, job] : jobs) {
      if (queues.size() <= queue) queues.resize(queue + 1);
      queues[queue].push_back(std::move(job));
      ++put;
    }
  } catch (const std::bad_alloc&) {  // the call fails as a whole
    while (put > 0) queues[jobs[--put].queue].pop_back();
    throw;
  }
  size_.fetch_add(jobs.size());
  ++submissions_;
}

bool AsyncQueues::has_jobs(std::size_t client) const {
  return std::ranges::any_of(clients_[client].queues,
                             [](const Jobs& queue) { return !queue.empty(); });
}

bool AsyncQueues::is_empty(AsyncQueue place) const {
  const auto& queues = clients_[place.client].queues;
  return place.queue >= queues.size() || queues[place.queue].empty();
}

void AsyncQueues::give_up_all() {
  for (Client& client : clients_) client.is_given_up = true;
}

bool AsyncQueues::has_given_up() const {
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_given_up && has_jobs(client)) return true;
  }
  return false;
}

std::string AsyncQueues::in_words() const {
  std::vector<AsyncQueue> ready;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue) {
      if (!clients_[client].queues[queue].empty()) ready.push_back({client, queue});
    }
  }
  return ready.empty() ? "none" : in_words(ready);
}

/// Describes the first queues, and the number of the others.
std::string AsyncQueues::in_words(std::span<const AsyncQueue> batch) const {
  std::string text;
  for (const AsyncQueue& place : batch.first(std::min(batch.size(), kMostQueuesNamed))) {
    text += (text.empty() ? "" : ", ") + name_of(place);
  }
  if (batch.size() > kMostQueuesNamed)
    text += " and " + std::to_string(batch.size() - kMostQueuesNamed) + " more";
  return text;
}

std::string AsyncQueues::name_of(AsyncQueue place) const {
  const AsyncClient* client = clients_[place.client].client;
  if (client == nullptr) return "a call of a store that this rank has destroyed";
  return client->name_of_queue(place.queue);
}

// --- functions that take the lock ----------------------------------------------------------------

std::vector<std::uint8_t> AsyncQueues::counts() {
  const std::lock_guard lock(mutex_);
  const auto rank = std::min<std::size_t>(topology_.rank, kSomeRank);
  std::vector<std::uint8_t> counts;
  for (Client& client : clients_) {
    if (client.is_dropped) continue;
    if (client.client != nullptr) {
      client.queues.resize(std::max(client.queues.size(), client.client->queues()));
    }
    counts.push_back(client.client == nullptr ? 1 : 0);
    for (const Jobs& queue : client.queues) {
      counts.push_back(queue.empty() ? static_cast<std::uint8_t>(rank) : kHasJob);
    }
  }
  return counts;
}

std::uint64_t AsyncQueues::digest() {
  const std::lock_guard lock(mutex_);
  Digest digest;
  digest.add(std::string_view("asynchronous calls"));
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    digest.add(std::uint64_t{client}).add(std::uint64_t{clients_[client].queues.size()});
  }
  return digest.value();
}

void AsyncQueues::drop_gone(std::span<const std::uint8_t> counts) {
  const std::lock_guard lock(mutex_);
  std::size_t index = 0;
  for (Client& client : clients_) {
    if (client.is_dropped) continue;
    client.is_dropped = counts[index] != 0;
    index += 1 + client.queues.size();
    if (client.is_dropped) client.queues.clear();
  }
}

std::vector<CommonJob> AsyncQueues::common(std::span<const std::uint8_t> counts, int waited_for) {
  const std::lock_guard lock(mutex_);
  std::vector<CommonJob> common;
  const std::uint64_t now = collectives::ticks();
  std::size_t index = 0;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    ++index;
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue, ++index) {
      const AsyncQueue place{client, queue};
      if (at(place).empty()) continue;
      AsyncJob& job = *at(place).front();
      note(job.times, counts[index], now, waited_for);
      if (counts[index] != kHasJob) continue;
      common.push_back({place, job.priority, job.bytes, job.done, job.is_alone, job.has_slices});
    }
  }
  return common;
}

std::uint64_t AsyncQueues::first_submitted(std::uint64_t now) {
  const std::lock_guard lock(mutex_);
  std::uint64_t first = now;
  for (const Client& client : clients_) {
    for (const Jobs& queue : client.queues) {
      if (!queue.empty()) first = std::min(first, queue.front()->times.submitted);
    }
  }
  return first;
}

std::vector<AsyncJob*> AsyncQueues::jobs_of(const AsyncBatch& batch, AsyncClient*& client) {
  const std::lock_guard lock(mutex_);
  client = clients_[batch.queues.front().client].client;
  std::vector<AsyncJob*> jobs;
  for (const AsyncQueue& place : batch.queues) jobs.push_back(at(place).front().get());
  return jobs;
}

void AsyncQueues::end(std::span<const AsyncQueue> batch, const std::exception_ptr& error,
                      collectives::AsyncStep& step) {
  {
    const std::lock_guard lock(mutex_);
    if (error != nullptr) ++failures_;
    for (const AsyncQueue& place : batch) {
      const std::shared_ptr<AsyncState> state = at(place).front()->state;
      step.bytes += at(place).front()->bytes;
      at(place).pop_front();
      state->end_part(error, failures_);
    }
    step.calls += batch.size();
    if (size_.load() == batch.size()) step.end = collectives::ticks();
    size_.fetch_sub(batch.size());
  }
  done_.notify_all();
}

void AsyncQueues::fail(Jobs& queue, const std::exception_ptr& error) noexcept {
  while (!queue.empty()) {
    const std::shared_ptr<AsyncState> state = queue.front()->state;
    queue.pop_front();
    state->end_part(error, failures_);
  }
}

void AsyncQueues::fail_all(const std::exception_ptr& error, bool is_for_good) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_for_good) failure_ = error;
    ++failures_;
    for (Client& client : clients_) {
      for (Jobs& queue : client.queues) fail(queue, error);
    }
    size_.store(0);
  }
  done_.notify_all();
}

std::string AsyncQueues::describe_ready() {
  const std::lock_guard lock(mutex_);
  return in_words();
}

std::string AsyncQueues::describe(std::span<const AsyncQueue> batch) {
  const std::lock_guard lock(mutex_);
  return in_words(batch);
}

std::string AsyncQueues::describe_missing(std::span<const std::uint8_t> all) {
  const std::lock_guard lock(mutex_);
  const int ranks = topology_.size;
  const std::size_t each = all.size() / static_cast<std::size_t>(ranks);
  std::string text;
  std::size_t named = 0;
  std::size_t index = 0;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    ++index;
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue, ++index) {
      std::vector<int> have;
      std::vector<int> lack;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto count = all[static_cast<std::size_t>(rank) * each + index];
        (count == kHasJob ? have : lack).push_back(rank);
      }
      if (have.empty() || lack.empty() || ++named > kMostQueuesNamed) continue;
      text += (text.empty() ? "" : "; ") + name_of({client, queue}) + ": " +
              names_of(topology_, have) + " made the call, and " + names_of(topology_, lack) +
              " did not";
    }
  }
  if (named > kMostQueuesNamed)
    text += "; and " + std::to_string(named - kMostQueuesNamed) + " more";
  return text;
}

}  // namespace tutti
