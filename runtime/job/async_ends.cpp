// SPDX-License-Identifier: Apache-2.0
// The end of asynchronous calls: of one client, of all, and of the process.
#include <algorithm>
#include <new>

#include "collectives/job/topology.hpp"
#include "runtime/job/async_calls.hpp"

namespace tutti {

namespace {

// For so long the end of the process waits for who carries out calls, and may be in an updater.
constexpr auto kLongestPark = std::chrono::seconds(1);
constexpr const char* kDestroyed = "a store or communicator is destroyed";

/// The asynchronous calls of this process that can be made: global, as its end is. Never destroyed,
/// because exit handlers need it.
struct OpenCalls {
  std::mutex mutex;
  std::vector<AsyncCalls*> all;
};

OpenCalls& open_calls() {
  static auto* const calls = new OpenCalls;
  return *calls;
}

}  // namespace

void park_async_calls(bool tells_others) noexcept {
  const std::lock_guard lock(open_calls().mutex);
  for (AsyncCalls* calls : open_calls().all) calls->park(tells_others);
}

void AsyncCalls::open() {
  const std::lock_guard lock(open_calls().mutex);
  open_calls().all.push_back(this);
}

/// What is complete before anybody notices that it is given up, is complete.
void AsyncCalls::close() {
  {
    const std::lock_guard lock(open_calls().mutex);
    std::erase(open_calls().all, this);
  }
  std::unique_lock lock(mutex_);
  ends_ = true;
  std::string given_up;
  if (jobs_.load() != 0) {
    for (Client& client : clients_) client.is_given_up = true;
    given_up = give_up(lock, "their store or communicator was destroyed");
  }
  lock.unlock();
  came_.notify_all();
  if (helper_.joinable()) helper_.join();
  lock.lock();
  done_.wait(lock, [&] { return !is_driven_; });  // by a thread that waits
  const bool has_jobs = jobs_.load() != 0;
  lock.unlock();
  if (has_jobs) {
    const std::string text =
        collectives::name_of(engine_.topology(), engine_.topology().rank) +
        " destroyed its store or communicator before its asynchronous calls were complete";
    engine_.raise_failure(ErrorCode::communication, text);
    fail_all(std::make_exception_ptr(Error(ErrorCode::communication, text, ErrorScope::failed)));
  }
  if (!given_up.empty() && engine_.failed()) say_given_up(kDestroyed, given_up);
  settle();
  waiting_->close();
}

void AsyncCalls::remove(std::size_t client) {
  if (forks_ != num_forks()) return;  // its jobs are the parent's
  std::unique_lock lock(mutex_);
  if (has_jobs(clients_[client])) {
    clients_[client].is_given_up = true;
    const std::string given_up = give_up(lock, "their store was destroyed");
    done_.wait(lock, [&] { return !has_jobs(clients_[client]); });
    if (engine_.failed()) say_given_up(kDestroyed, given_up);
  }
  Client& gone = clients_[client];
  gone.queues.resize(std::max(gone.queues.size(), gone.client->queues()));  // others count them
  gone.client = nullptr;
}

bool AsyncCalls::has_jobs(const Client& client) {
  return std::ranges::any_of(client.queues, [](const Queue& queue) { return !queue.empty(); });
}

/// In mutex_, with jobs that nobody can wait for any more. Returns what they are, in words. Whoever
/// carries them out, or does so next, fails the group.
std::string AsyncCalls::give_up(std::unique_lock<std::mutex>& lock, const char* why) {
  why_given_up_ = why;
  waiting_->patience.is_given_up.store(true);
  std::string calls = "several";
  try {
    calls = ready_in_words();
  } catch (const std::bad_alloc&) {  // in a destructor
  }
  lock.unlock();
  came_.notify_all();
  engine_.rouse();
  lock.lock();
  return calls;
}

/// In mutex_: jobs were complete before anybody noticed that they were given up. Those that others
/// have go on.
void AsyncCalls::keep_if_complete() {
  if (!waiting_->patience.is_given_up.load()) return;
  const bool has_given_up = std::ranges::any_of(
      clients_, [](const Client& client) { return client.is_given_up && has_jobs(client); });
  if (!has_given_up) waiting_->patience.is_given_up.store(false);
}

/// This fails the job, and nobody else says why; so it is said where the log is quiet, too. A
/// program that ends by an exception has something else to say.
void AsyncCalls::say_given_up(const char* what, const std::string& calls) const noexcept {
  if (std::uncaught_exceptions() > 0) return;
  try {
    engine_.log().write(LogLevel::quiet,
                        std::string("error: ") + what +
                            " before its asynchronous calls are complete (" + calls +
                            "); they are given up, and so are all calls after them. " +
                            "wait() for them, or call barrier(), first");
  } catch (const std::bad_alloc&) {  // the failure itself says what has happened
  }
}

/// Where other nodes are told, that comes first: whoever notices that it is given up fails the
/// group, too.
void AsyncCalls::park(bool tells_others) noexcept {
  try {
    std::unique_lock lock(mutex_);
    const bool has_jobs = jobs_.load() != 0;
    if (has_jobs && tells_others) {
      const std::string calls = ready_in_words();
      lock.unlock();
      engine_.raise_failure(ErrorCode::communication,
                            collectives::name_of(engine_.topology(), engine_.topology().rank) +
                                " ended MPI before its asynchronous calls (" + calls +
                                ") were complete");
      return;
    }
    if (has_jobs) {
      for (Client& client : clients_) client.is_given_up = true;
      say_given_up("the program ends", give_up(lock, "the process ends"));
    }
    if (!is_driver()) done_.wait_for(lock, kLongestPark, [&] { return !is_driven_; });
  } catch (const std::bad_alloc&) {  // the process ends all the same
  }
}

}  // namespace tutti
