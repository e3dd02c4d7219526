// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_calls.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <sys/prctl.h>
#include <system_error>

#include "collectives/job/fused_layout.hpp"
#include "collectives/job/signals_blocked.hpp"
#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

// What the link takes in this time goes as one call: a more urgent one waits so long at most.
constexpr double kSecondsPerBatch = 0.010;
// Less than this, however slow the link, would have too many rounds.
constexpr std::size_t kLeastSlice = std::size_t{64} << 10;
// Times a slice, where there is one queue, so that nothing can overtake: each slice has a round, in
// which the link is idle.
constexpr std::size_t kLongerIfAlone = 8;
// Before the first batch has told how fast the link is.
constexpr double kFirstGuess = 100e6;      // bytes per second, between nodes
constexpr double kFirstGuessInNode = 4e9;  // in a node
// For so long, a helper without a core of its own leaves jobs to the thread that will wait.
constexpr auto kLateStart = std::chrono::milliseconds(5);
// How often a thread that waits lets messages of the program move.
constexpr auto kProgressEvery = std::chrono::milliseconds(1);
// After the counts, a round has two bytes more: how much is one batch, and 0 if a rank has waited
// for too long.
constexpr std::size_t kExtraBytes = 2;

}  // namespace

AsyncCalls::AsyncCalls(collectives::Engine& engine, const Settings& settings)
    : engine_(engine),
      deadline_(settings.timeout.count() == 0
                    ? Clock::duration::max()
                    : std::chrono::duration_cast<Clock::duration>(settings.timeout)),
      has_network_(engine.topology().num_nodes() > 1),
      begins_late_(!has_network_ && engine.tuning().threads == 1),
      bytes_per_second_(has_network_ ? kFirstGuess : kFirstGuessInNode),
      waiting_(std::make_shared<AsyncWaiting>()) {
  waiting_->await = [this](const std::function<bool()>& ready) { await(ready); };
  waiting_->warn = [log = engine.log()](const std::string& text) { log.warn(text); };
  open();
}

// --- the program's thread ------------------------------------------------------------------------

std::size_t AsyncCalls::add(AsyncClient& client) {
  if (!has_engine()) await_all();
  const std::lock_guard lock(mutex_);
  clients_.push_back({&client});
  return clients_.size() - 1;
}

void AsyncCalls::submit(std::size_t client, std::vector<Placed>&& jobs) {
  if (!helper_.joinable()) start_helper();
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    std::vector<Queue>& queues = clients_[client].queues;
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
    jobs_.fetch_add(jobs.size());
    ++submissions_;
    wakes = is_idle_ || waiting_->patience.waiters.load() != 0;
  }
  if (wakes) came_.notify_all();
}

void AsyncCalls::start_helper() {
  const collectives::SignalsBlocked blocked;
  try {
    helper_ = std::thread([this] { help(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::out_of_memory,
                std::string("asynchronous calls need a thread, which cannot be made: ") +
                    error.what() +
                    "; raise the limit of threads (ulimit -u, the cgroup's pids.max)");
  }
}

/// Whoever waits does the work, unless another thread does already. Ends without a wait, if `ready`
/// holds.
template <class Ready>
void AsyncCalls::await(const Ready& ready) {
  if (forks_ != num_forks()) throw_forked(engine_.topology().rank);  // nobody here goes on with it
  std::unique_lock lock(mutex_);
  if (ready()) return;
  if (is_driver()) {
    throw Error(ErrorCode::invalid_argument,
                "an updater waits for an asynchronous call, which cannot go on meanwhile");
  }
  try {
    drive_until(lock, ready);
  } catch (...) {  // a signal's handler threw: the helper, which saw a thread wait, looks again
    if (!lock.owns_lock()) lock.lock();
    lock.unlock();
    came_.notify_all();
    done_.notify_all();
    throw;
  }
  const bool leaves_jobs = is_idle_ && jobs_.load() != 0;
  lock.unlock();
  if (leaves_jobs) came_.notify_all();
  done_.notify_all();
}

template <class Ready>
void AsyncCalls::drive_until(std::unique_lock<std::mutex>& lock, const Ready& ready) {
  const AsyncWaiting::Timed timed(*waiting_);
  if (is_driven_) engine_.rouse();  // it need not spare this thread's core any more
  while (!ready()) {
    if (is_driven_) {
      watch_driver(lock, ready);
    } else {
      drive(lock, /*beside=*/false);
    }
  }
}

/// On one node the helper makes no MPI call, nor does a thread that has not made the group. What
/// another rank waits for may be a message of the program, which this thread lets move if it may.
/// The driver's own waits have the deadline.
template <class Ready>
void AsyncCalls::watch_driver(std::unique_lock<std::mutex>& lock, const Ready& ready) {
  const auto can_go_on = [&] { return ready() || !is_driven_; };
  auto asked_at = Clock::now();
  bool lets_move = !has_network_;
  while (!can_go_on()) {
    const Clock::duration look_every = lets_move ? Clock::duration(kProgressEvery)
                                                 : Clock::duration(collectives::kInterruptedEvery);
    if (done_.wait_for(lock, look_every, can_go_on)) return;
    lock.unlock();  // who is asked may need a lock that this thread's caller holds
    if (lets_move) lets_move = engine_.progress();
    if (const auto now = Clock::now(); now - asked_at >= collectives::kInterruptedEvery) {
      asked_at = now;
      if (collectives::interrupted()) {
        throw Error(ErrorCode::communication,
                    "a wait for an asynchronous call was interrupted by a signal");
      }
    }
    lock.lock();
  }
}

void AsyncCalls::await_queue(std::size_t client, std::size_t queue) {
  if (jobs_.load() == 0) return;
  await([&] {
    const auto& queues = clients_[client].queues;
    return queue >= queues.size() || queues[queue].empty();
  });
}

void AsyncCalls::await_all() {
  if (jobs_.load() == 0) return;
  await([&] { return jobs_.load() == 0; });
}

// --- the thread that drives ---------------------------------------------------------------------

void AsyncCalls::help() {
  pthread_setname_np(pthread_self(), "tutti-async");
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; by default naps of 50 us take twice as long
  const auto is_needed = [&] {
    return ends_ || (jobs_.load() != 0 && !is_driven_ && waiting_->patience.waiters.load() == 0);
  };
  std::unique_lock lock(mutex_);
  while (true) {
    const bool was_idle = !is_needed();
    is_idle_ = was_idle;
    came_.wait(lock, is_needed);
    is_idle_ = false;
    if (was_idle && begins_late_) {
      came_.wait_for(lock, kLateStart,
                     [&] { return ends_ || waiting_->patience.is_given_up.load(); });
    }
    if (ends_) return;
    if (is_needed()) drive(lock, /*beside=*/true);
  }
}

/// `lock` is of mutex_. `beside`: a thread that computes.
void AsyncCalls::drive(std::unique_lock<std::mutex>& lock, bool beside) {
  is_driven_ = true;
  is_beside_ = beside;
  driver_.store(std::this_thread::get_id());
  lock.unlock();
  turn();
  lock.lock();
  driver_.store({});
  is_driven_ = false;
  done_.notify_all();
}

void AsyncCalls::turn() {
  const auto begin = Clock::now();
  try {
    if (waiting_->patience.is_given_up.load()) {
      const std::string why = [&] {
        const std::lock_guard lock(mutex_);
        return std::string(why_given_up_);
      }();
      engine_.fail(collectives::LocalError{
          ErrorCode::communication,
          "asynchronous calls (" + describe_ready() + ") were given up: " + why});
    }
    if (take_turn()) {
      in_vain_ = {};
    } else {
      napped_in_vain(begin);
    }
  } catch (...) {
    fail_for_good();
  }
}

/// In a handler. The engine may be as good as before; the queues of the ranks are not.
void AsyncCalls::fail_for_good() {
  try {
    const auto error = collectives::caught([] {
      try {
        throw;
      } catch (const Error& known) {
        throw Error(known.code(), known.what(), ErrorScope::failed, known.reporter());
      }
    });
    if (error) engine_.fail(*error);
  } catch (const Error& error) {
    engine_.raise_failure(error.code(), error.what());
    fail_all(std::current_exception());
  }
}

bool AsyncCalls::take_turn() {
  begin_step();
  const std::vector<std::uint8_t> own = own_counts();
  std::vector<std::uint8_t> counts = own;
  const std::uint64_t begun = collectives::ticks();
  meet(counts);
  step_.busy += collectives::ticks() - begun;
  if (counts.back() == 0) expire(own);
  const Batch batch = choose(counts);
  drop_gone(counts);
  if (!batch.places.empty()) carry_out(batch);
  return !batch.places.empty();
}

/// For each client whether it is gone and what each queue has, then what learn_speed() and
/// napped_in_vain() found.
std::vector<std::uint8_t> AsyncCalls::own_counts() {
  const std::lock_guard lock(mutex_);
  const auto rank = std::min<std::size_t>(engine_.topology().rank, kSomeRank);
  std::vector<std::uint8_t> counts;
  for (Client& client : clients_) {
    if (client.is_dropped) continue;
    if (client.client != nullptr) {
      client.queues.resize(std::max(client.queues.size(), client.client->queues()));
    }
    counts.push_back(client.client == nullptr ? 1 : 0);
    for (const Queue& queue : client.queues) {
      counts.push_back(queue.empty() ? static_cast<std::uint8_t>(rank) : kHasJob);
    }
  }
  const auto bytes = static_cast<std::uint64_t>(bytes_per_second_ * kSecondsPerBatch);
  counts.push_back(static_cast<std::uint8_t>(std::bit_width(bytes)));
  counts.push_back(in_vain_ < deadline_ ? 1 : 0);
  return counts;
}

/// The least of all ranks.
void AsyncCalls::meet(std::vector<std::uint8_t>& counts) {
  const Patiently patiently(engine_, waiting_->patience, is_beside_);
  auto* bytes = reinterpret_cast<std::byte*>(counts.data());
  const collectives::Segment segment{bytes, bytes, counts.size(), DType::uint8};
  const auto describe = [&] {
    return "agreement on asynchronous calls (this rank has " + describe_ready() + ")";
  };
  const collectives::CountedCall counted(engine_.statistics(), "async_agreement");
  engine_.run({.kind = collectives::Kind::allreduce,
               .reduce = ReduceOp::min,
               .digest = digest(),
               .segments = {&segment, 1},
               .describe = describe});
}

/// Ranks whose counts are about other queues make another call.
std::uint64_t AsyncCalls::digest() {
  const std::lock_guard lock(mutex_);
  Digest digest;
  digest.add(std::string_view("asynchronous calls"));
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    digest.add(std::uint64_t{client}).add(std::uint64_t{clients_[client].queues.size()});
  }
  return digest.value();
}

/// Clients that all ranks have removed are in no later round of any rank.
void AsyncCalls::drop_gone(std::span<const std::uint8_t> counts) {
  const std::lock_guard lock(mutex_);
  std::size_t index = 0;
  for (Client& client : clients_) {
    if (client.is_dropped) continue;
    client.is_dropped = counts[index] != 0;
    index += 1 + client.queues.size();
    if (client.is_dropped) client.queues.clear();
  }
}

/// The next batch: the same on all ranks. Of one client, because its jobs become one call.
AsyncCalls::Batch AsyncCalls::choose(std::span<const std::uint8_t> counts) {
  const std::lock_guard lock(mutex_);
  std::vector<Place> common;
  const std::uint64_t now = collectives::ticks();
  std::size_t index = 0;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    ++index;
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue, ++index) {
      const Place place{client, queue};
      if (!clients_[client].queues[queue].empty()) note(*at(place).front(), counts[index], now);
      if (counts[index] == kHasJob) common.push_back(place);
    }
  }
  if (common.empty()) return {};
  std::ranges::stable_sort(common, std::greater(),
                           [&](const Place& place) { return at(place).front()->priority; });
  const std::uint8_t width = counts[counts.size() - kExtraBytes];
  const std::size_t most = width == 0 ? 0 : std::size_t{1} << (width - 1);
  const AsyncJob& first = *at(common.front()).front();
  const bool is_only_queue = index == 2;  // a byte of the client, and one of its queue
  const std::size_t slice = std::max(most, kLeastSlice) * (is_only_queue ? kLongerIfAlone : 1);
  if (first.has_slices && (first.done > 0 || first.bytes > 2 * slice)) {
    return {{common.front()}, std::min(slice, first.bytes - first.done)};
  }
  const std::size_t client = common.front().client;
  std::vector<Place> batch;
  std::size_t bytes = 0;
  for (const Place& place : common) {
    if (place.client != client) continue;
    const AsyncJob& job = *at(place).front();
    bytes += job.bytes;
    const bool is_apart = job.is_alone || job.done > 0;  // a part of the sum is in its place
    if (!batch.empty() && (bytes > most || is_apart)) break;
    batch.push_back(place);
    if (job.is_alone) break;
  }
  return {std::move(batch)};
}

void AsyncCalls::carry_out(const Batch& batch) {
  std::vector<AsyncJob*> jobs;
  AsyncClient* client = nullptr;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    client = clients_[batch.places.front().client].client;
    for (const Place& place : batch.places) jobs.push_back(at(place).front().get());
  }
  const std::uint64_t begun = collectives::ticks();
  for (AsyncJob* job : jobs) {
    if (job->times.begun == 0) job->times.begun = begun;
    bytes += job->bytes;
  }
  bool is_complete = true;
  std::exception_ptr error;
  const auto begin = Clock::now();
  try {
    const Patiently patiently(engine_, waiting_->patience, is_beside_);
    if (batch.slice == 0) {
      client->carry_out(jobs);
      learn_speed(bytes, Clock::now() - begin);
    } else {
      client->carry_slice(*jobs.front(), batch.slice);
      jobs.front()->done += batch.slice;
      is_complete = jobs.front()->done == bytes;
      if (!is_complete) learn_speed(batch.slice, Clock::now() - begin);  // without an update
    }
    step_.waited += count_waits();
  } catch (...) {
    error = std::current_exception();
  }
  step_.busy += collectives::ticks() - begun;
  if (error != nullptr && engine_.failed()) std::rethrow_exception(error);
  if (error != nullptr) confirm(batch.places);
  if (error != nullptr && batch.places.size() > 1) return carry_out_apart(batch.places);
  if (error != nullptr || is_complete) end(batch.places, error);
}

/// After an error that has changed nothing. Which jobs share a batch is by chance: those that do
/// not have the error are done.
void AsyncCalls::carry_out_apart(std::span<const Place> batch) {
  for (const Place& place : batch) carry_out({.places = {place}});
}

/// Jobs are gone before anybody finds them complete: they refer to the program's data.
void AsyncCalls::end(std::span<const Place> batch, const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error != nullptr) ++failures_;
    for (const Place& place : batch) {
      const std::shared_ptr<AsyncState> state = at(place).front()->state;
      step_.bytes += at(place).front()->bytes;
      at(place).pop_front();
      state->end_part(error, failures_);
    }
    step_.calls += batch.size();
    if (jobs_.load() == batch.size()) step_.end = collectives::ticks();
    jobs_.fetch_sub(batch.size());
    keep_if_complete();
  }
  done_.notify_all();
}

void AsyncCalls::fail_all(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (engine_.failed()) failure_ = error;
    std::vector<std::shared_ptr<AsyncState>> states;
    for (Client& client : clients_) {
      for (Queue& queue : client.queues) {
        for (const auto& job : queue) states.push_back(job->state);
        queue.clear();
      }
    }
    jobs_.store(0);
    ++failures_;
    for (const auto& state : states) state->end_part(error, failures_);
  }
  done_.notify_all();
}

}  // namespace tutti
