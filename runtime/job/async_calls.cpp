// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_calls.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <sys/prctl.h>
#include <system_error>

#include "collectives/job/local_error.hpp"
#include "collectives/job/signals_blocked.hpp"

namespace tutti {

namespace {

// For this time, a helper without a core of its own leaves jobs to a thread that may begin to wait.
constexpr auto kLateStart = std::chrono::milliseconds(5);
// The interval at which a waiting thread drives messages of the program.
constexpr auto kProgressEvery = std::chrono::milliseconds(1);
// At the end of the process, the longest wait for the thread that carries out calls, which may be
// in an updater.
constexpr auto kLongestPark = std::chrono::seconds(1);
constexpr const char* kDestroyed = "a store or communicator is destroyed";

/// The open AsyncCalls of this process, global because the end of the process is. Never destroyed,
/// because exit handlers use it.
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

void leave_idle_groups() noexcept {
  const std::lock_guard lock(open_calls().mutex);
  for (AsyncCalls* calls : open_calls().all) calls->leave_if_idle();
}

AsyncCalls::AsyncCalls(collectives::Engine& engine, const Settings& settings)
    : engine_(engine),
      timeout_(settings.timeout),
      has_network_(engine_.topology().num_nodes() > 1),
      begins_late_(!has_network_ && engine_.tuning().threads == 1),
      waiting_(std::make_shared<AsyncWaiting>()),
      queues_(engine.topology()),
      round_(engine, queues_, *waiting_, settings),
      no_memory_text_(collectives::name_of(engine.topology(), engine.topology().rank) +
                      ": no memory for asynchronous calls"),
      no_memory_(std::make_exception_ptr(
          Error(ErrorCode::out_of_memory, no_memory_text_, ErrorScope::failed))) {
  waiting_->await = [this](const std::function<bool()>& ready) { await(ready); };
  waiting_->warn = [log = engine.log()](const std::string& text) { log.warn(text); };
  const std::lock_guard lock(open_calls().mutex);
  open_calls().all.push_back(this);
}

/// Gives up unfinished calls. A call that completes before the driver notices that is complete.
void AsyncCalls::close() {
  {
    const std::lock_guard lock(open_calls().mutex);
    std::erase(open_calls().all, this);
  }
  Lock lock = queues_.lock();
  ends_ = true;
  std::string given_up;
  if (queues_.size() != 0) {
    queues_.give_up_all();
    given_up = give_up(lock, "their store or communicator was destroyed");
  }
  lock.unlock();
  queues_.came().notify_all();
  lock.lock();
  const auto is_left = [&] { return !is_driven_; };
  await_given_up(lock, is_left);
  lock.unlock();
  if (helper_.joinable()) helper_.join();
  lock.lock();
  await_given_up(lock, is_left);  // a waiting thread may be driving
  const bool has_jobs = queues_.size() != 0;
  lock.unlock();
  if (has_jobs) fail_destroyed();
  if (!given_up.empty() && engine_.failed()) say_given_up(kDestroyed, given_up);
  round_.settle();
  waiting_->close();
}

// --- the program's thread ------------------------------------------------------------------------

std::size_t AsyncCalls::add(AsyncClient& client) {
  if (!has_engine()) await_all();
  const Lock lock = queues_.lock();
  return queues_.add(client);
}

void AsyncCalls::remove(std::size_t client) {
  if (forks_ != num_forks()) return;  // the jobs belong to the parent
  Lock lock = queues_.lock();
  if (queues_.has_jobs(client)) {
    queues_.give_up(client);
    const std::string given_up = give_up(lock, "their store was destroyed");
    await_given_up(lock, [&] { return !queues_.has_jobs(client); });
    if (engine_.failed()) say_given_up(kDestroyed, given_up);
  }
  queues_.remove(client);
}

/// Marks jobs as given up, because nobody can wait for them any more. Requires the lock. Returns a
/// description of the jobs. The thread that carries them out, or the next one to do so, fails the
/// group.
std::string AsyncCalls::give_up(Lock& lock, const char* why) {
  why_given_up_ = why;
  waiting_->patience.is_given_up.store(true);
  std::string calls = "several";
  try {
    calls = queues_.in_words();
  } catch (const std::bad_alloc&) {  // a destructor may call this
  }
  lock.unlock();
  queues_.came().notify_all();
  engine_.waiter().rouse();
  lock.lock();
  return calls;
}

/// Waits for the thread that drives. Its own waits end when its calls are given up, but it may be
/// in code of the program.
template <class Ready>
void AsyncCalls::await_given_up(Lock& lock, const Ready& ready) {
  if (timeout_.count() == 0) return queues_.done().wait(lock, ready);
  if (!queues_.done().wait_for(lock, timeout_, ready)) end_process();
}

/// Ends the process, as a call of MPI does that does not return: the store cannot be destroyed
/// while another thread uses it.
void AsyncCalls::end_process() noexcept {
  try {
    const std::string text =
        collectives::name_of(engine_.topology(), engine_.topology().rank) + " has waited " +
        collectives::in_seconds(std::chrono::duration_cast<Clock::duration>(timeout_)) +
        " for its asynchronous calls to end, whose store or communicator is destroyed; this rank "
        "ends. See whether an updater returns, or raise TUTTI_TIMEOUT";
    engine_.raise_failure(ErrorCode::timeout, text, collectives::kNoRank);
    std::fprintf(stderr, "tutti: error: %s\n", text.c_str());
  } catch (const std::bad_alloc&) {  // it ends all the same
  }
  std::_Exit(exit_code(ErrorCode::timeout));
}

/// Prints why the calls were given up, even if the log is quiet, because it makes the job fail, and
/// nobody else reports it. Prints nothing if the program ends by an exception, which is the actual
/// reason.
void AsyncCalls::say_given_up(const char* what, const std::string& calls) const noexcept {
  if (std::uncaught_exceptions() > 0) return;
  try {
    engine_.log().write(LogLevel::quiet,
                        std::string("error: ") + what +
                            " before its asynchronous calls are complete (" + calls +
                            "); they are given up, and so are all calls after them. " +
                            "wait() for them, or call barrier(), first");
  } catch (const std::bad_alloc&) {  // the failure itself describes what happened
  }
}

/// Stops this group's calls at the end of the process. If other nodes are to be told, that is done
/// first, because the driver also fails the group once it notices that calls are given up.
void AsyncCalls::park(bool tells_others) noexcept {
  try {
    Lock lock = queues_.lock();
    const bool has_jobs = queues_.size() != 0;
    if (has_jobs && tells_others) {
      const std::string calls = queues_.in_words();
      lock.unlock();
      engine_.raise_failure(ErrorCode::communication,
                            collectives::name_of(engine_.topology(), engine_.topology().rank) +
                                " ended MPI before its asynchronous calls (" + calls +
                                ") were complete",
                            collectives::kNoRank);
      say_given_up("the program ends MPI", calls);
      return;
    }
    if (has_jobs) {
      queues_.give_up_all();
      say_given_up("the program ends", give_up(lock, "the process ends"));
    }
    if (!is_driver()) queues_.done().wait_for(lock, kLongestPark, [&] { return !is_driven_; });
  } catch (const std::bad_alloc&) {  // the process ends anyway
  }
}

/// Leaves the group, unless another thread of the program is in a call of it.
void AsyncCalls::leave_if_idle() noexcept {
  if (forks_ != num_forks()) return;
  const Lock lock = queues_.lock();
  const bool is_busy = queues_.size() != 0 || is_driven_;
  if (is_busy || engine_.failed() || engine_.memory().control().calls.is_in_a_call()) return;
  engine_.leave(std::uncaught_exceptions() > 0);
}

void AsyncCalls::submit(std::size_t client, std::vector<Placed>&& jobs) {
  if (!helper_.joinable()) start_helper();
  bool wakes = false;
  {
    const Lock lock = queues_.lock();
    queues_.put(client, std::move(jobs));
    wakes = is_idle_ || waiting_->patience.waiters.load() != 0;
  }
  if (wakes) queues_.came().notify_all();
}

void AsyncCalls::start_helper() {
  const collectives::SignalsBlocked blocked;
  try {
    helper_ = std::thread([this] { help(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::out_of_memory,
                std::string("no thread for asynchronous calls can be made: ") + error.what() +
                    "; raise the limit of threads (ulimit -u, the cgroup's pids.max)");
  }
}

/// Waits until `ready`, and does the work unless another thread is doing it. Returns at once if
/// `ready` holds already.
template <class Ready>
void AsyncCalls::await(const Ready& ready) {
  // Nobody here would carry out the jobs.
  if (forks_ != num_forks()) throw_forked(engine_.topology().rank);
  Lock lock = queues_.lock();
  if (ready()) return;
  if (is_driver()) {
    throw Error(ErrorCode::invalid_argument,
                "an updater waits for an asynchronous call, which cannot go on meanwhile");
  }
  try {
    drive_until(lock, ready);
    // A signal's handler threw: the helper has seen a waiting thread, and must look again.
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    lock.unlock();
    queues_.came().notify_all();
    queues_.done().notify_all();
    throw;
  }
  const bool leaves_jobs = is_idle_ && queues_.size() != 0;
  lock.unlock();
  if (leaves_jobs) queues_.came().notify_all();
  queues_.done().notify_all();
}

template <class Ready>
void AsyncCalls::drive_until(Lock& lock, const Ready& ready) {
  const AsyncWaiting::Timed timed(*waiting_);
  if (is_driven_) engine_.waiter().rouse();  // the driver need no longer spare this thread's core
  while (!ready()) {
    if (is_driven_) {
      watch_driver(lock, ready);
    } else {
      drive(lock, /*beside=*/false);
    }
  }
}

/// Waits while another thread drives. On one node neither the helper nor a thread that has not made
/// the group calls MPI. If another rank waits for a message of the program, this thread drives it
/// where permitted. The deadline is in the waits of the driver.
template <class Ready>
void AsyncCalls::watch_driver(Lock& lock, const Ready& ready) {
  const auto can_go_on = [&] { return ready() || !is_driven_; };
  auto asked_at = Clock::now();
  bool lets_move = !has_network_;
  while (!can_go_on()) {
    const Clock::duration look_every = lets_move ? Clock::duration(kProgressEvery)
                                                 : Clock::duration(collectives::kInterruptedEvery);
    if (queues_.done().wait_for(lock, look_every, can_go_on)) return;
    lock.unlock();  // the interrupt check may need a lock that this thread's caller holds
    if (lets_move) lets_move = engine_.waiter().progress();
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
  if (queues_.size() == 0) return;
  await([&] { return queues_.is_empty({client, queue}); });
}

void AsyncCalls::await_all() {
  if (queues_.size() == 0) return;
  await([&] { return queues_.size() == 0; });
}

void AsyncCalls::settle() noexcept { round_.settle(); }

/// True if slices have the bits of the whole. MPI's order of summation may depend on the position
/// in a message.
bool AsyncCalls::may_slice() const {
  const bool by_mpi = has_network_ && engine_.tuning().exchange == collectives::Exchange::mpi;
  return engine_.topology().size > 1 && !by_mpi;
}

// --- the thread that drives ---------------------------------------------------------------------

void AsyncCalls::help() {
  pthread_setname_np(pthread_self(), "tutti-async");
  if (const auto& processors = engine_.memory().processors) processors->apply();
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; with the default, naps of 50 us take twice as long
  const auto is_needed = [&] {
    return ends_ || (queues_.size() != 0 && !is_driven_ && waiting_->patience.waiters.load() == 0);
  };
  Lock lock = queues_.lock();
  while (true) {
    const bool was_idle = !is_needed();
    is_idle_ = was_idle;
    queues_.came().wait(lock, is_needed);
    is_idle_ = false;
    if (was_idle && begins_late_) {
      queues_.came().wait_for(lock, kLateStart,
                              [&] { return ends_ || waiting_->patience.is_given_up.load(); });
    }
    if (ends_) return;
    if (is_needed()) drive(lock, /*beside=*/true);
  }
}

/// Carries out one turn. `beside`: on a thread beside the one that computes.
void AsyncCalls::drive(Lock& lock, bool beside) {
  is_driven_ = true;
  driver_.store(std::this_thread::get_id());
  lock.unlock();
  turn(beside);
  lock.lock();
  driver_.store({});
  is_driven_ = false;
  queues_.done().notify_all();
}

/// Never throws: in the end other waiting threads find that nobody drives, or that their jobs have
/// failed.
void AsyncCalls::turn(bool beside) noexcept {
  try {
    if (waiting_->patience.is_given_up.load()) {
      const std::string why = [&] {
        const Lock lock = queues_.lock();
        return std::string(why_given_up_);
      }();
      engine_.fail(collectives::LocalError{
          ErrorCode::communication,
          "asynchronous calls (" + queues_.describe_ready() + ") were given up: " + why});
    }
    round_.turn(beside);
  } catch (...) {
    fail_for_good();
  }
}

/// Fails the group in close() if there are jobs that have not been carried out.
void AsyncCalls::fail_destroyed() noexcept {
  std::exception_ptr error = no_memory_;
  try {
    const std::string text =
        collectives::name_of(engine_.topology(), engine_.topology().rank) +
        " destroyed its store or communicator before its asynchronous calls were complete";
    engine_.raise_failure(ErrorCode::communication, text);
    error = std::make_exception_ptr(Error(ErrorCode::communication, text, ErrorScope::failed));
  } catch (const std::bad_alloc&) {
    engine_.raise_failure(ErrorCode::out_of_memory, no_memory_text_);
  }
  queues_.fail_all(error, /*is_for_good=*/true);
}

namespace {

/// Rethrows the current exception as an error that fails a group.
void rethrow_as_failure() {
  try {
    throw;
  } catch (const Error& known) {
    throw Error(known.code(), known.what(), ErrorScope::failed, known.reporter());
  }
}

}  // namespace

/// Fails all jobs with the current exception. The engine may still be usable, but the queues of the
/// ranks no longer agree.
void AsyncCalls::fail_for_good() noexcept {
  std::exception_ptr error = no_memory_;
  try {
    try {
      if (const auto local = collectives::caught(rethrow_as_failure)) engine_.fail(*local);
    } catch (const Error& known) {
      engine_.raise_failure(known.code(), known.what(), collectives::reporter_of_agreed(known));
      error = std::current_exception();
    }
  } catch (...) {  // no memory to describe the error
    engine_.raise_failure(ErrorCode::out_of_memory, no_memory_text_);
  }
  queues_.fail_all(error, engine_.failed());
}

}  // namespace tutti
