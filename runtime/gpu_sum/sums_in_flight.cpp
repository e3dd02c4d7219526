// SPDX-License-Identifier: Apache-2.0
//   stream   ... sum of values | begun 7 | NCCL | ended 7 | update ... | begun 8 | NCCL | ended 8
//   ring     [ 7 | 8 | . | . ]   the oldest sum's time runs; it starts anew when one has ended
//
// If a rank's GPU has not come to `begun`, the others wait for that rank. They give it time to
// report the error itself.
#include "runtime/gpu_sum/sums_in_flight.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>

#include "tutti/error.hpp"

#include "runtime/gpu_sum/reducer.hpp"

namespace tutti::gpus {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLook{20'000};  // no call waits for a sum that goes well
constexpr std::chrono::microseconds kLookWhileAwaited{100};
constexpr auto kLongestLook = std::chrono::seconds(1);  // a job that was suspended was not waiting
constexpr auto kProcessesEvery = std::chrono::milliseconds(500);
constexpr auto kWarnAtLast = std::chrono::seconds(30);
constexpr auto kMostGrace = std::chrono::seconds(1);

}  // namespace

struct SumsInFlight::State {
  struct Sum {
    Event begun = nullptr;
    Event ended = nullptr;
    bool is_whole = false;  ///< `ended` is recorded
  };

  State(Group& of_group, std::shared_ptr<Gpus> of_gpus, int of_device,
        std::shared_ptr<NodeCollectives> of_node)
      : group(of_group),
        gpus(std::move(of_gpus)),
        accelerator(gpus->accelerator()),
        device(of_device),
        node(std::move(of_node)) {
    for (Sum& sum : ring) {
      sum.begun = accelerator.create_event(device);
      sum.ended = accelerator.create_event(device);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Destroying an event waits for nothing.
  ~State() {
    for (const Sum& sum : ring) {
      if (sum.begun != nullptr) accelerator.destroy_event(sum.begun);
      if (sum.ended != nullptr) accelerator.destroy_event(sum.ended);
    }
  }

  void watch();
  void look();
  void look_at_processes();
  void retire();
  void expire();
  void fail(ErrorCode code, const std::string& text);
  [[noreturn]] void fail_and_throw(const Error& error);
  void abort(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string wait_between() const;

  Group& group;  ///< not used any more once is_over is true
  const std::shared_ptr<Gpus> gpus;
  Accelerator& accelerator;
  const int device;
  const std::shared_ptr<NodeCollectives> node;

  std::mutex mutex;  ///< guards the members that follow
  std::condition_variable changed;
  std::condition_variable ended;
  std::array<Sum, kMost> ring;
  std::size_t first = 0;  ///< those in flight are first, first + 1, ... of the ring
  std::size_t count = 0;
  Clock::time_point looked_at;
  Clock::duration waited{0};     ///< time for the oldest sum
  Clock::duration look_next{0};  ///< time until the next look at processes
  bool has_warned = false;
  bool is_asleep = false;   ///< the thread sleeps
  bool is_awaited = false;  ///< the object's end waits for the sums
  bool is_over = false;     ///< the group has failed, and the thread aborts
  bool is_aborted = false;
};

std::string SumsInFlight::State::name() const {
  return "the sum of " + to_string(gpu(device)) + " over the ranks";
}

/// Explains a wait between GPUs: a rank whose own GPU does not end may be waiting for another
/// one's.
std::string SumsInFlight::State::wait_between() const {
  if (group.topology().num_nodes() > 1)
    return ", in which the GPUs of all ranks wait for each other";
  std::string ranks;
  for (const int rank : group.topology().local_ranks()) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return ", in which the GPUs of ranks " + ranks + " wait for each other";
}

/// Takes sums that have ended out of the ring. Errors: those that a stream reports.
void SumsInFlight::State::retire() {
  while (count > 0 && ring[first].is_whole && accelerator.done(ring[first].ended)) {
    ring[first].is_whole = false;
    first = (first + 1) % kMost;
    --count;
    waited = look_next = Clock::duration(0);
    has_warned = false;
  }
  if (count == 0) ended.notify_all();
}

void SumsInFlight::State::fail(ErrorCode code, const std::string& text) {
  group.fail_node(code, text);
  is_over = true;
}

/// Fails the group and throws. In any thread. With several nodes the caller fails the group,
/// because it has the engine.
void SumsInFlight::State::fail_and_throw(const Error& error) {
  if (group.topology().num_nodes() > 1) throw error;
  fail(error.code(), error.what());
  changed.notify_all();
  group.check_usable();
  throw Error(error.code(), error.what(), ErrorScope::failed, /*reporter=*/false);
}

/// Looks for errors and expired deadlines. Time counts while this looks at it, as in the engine's
/// waits. With several nodes a call waits for every sum, and this looks only for failures
/// elsewhere.
void SumsInFlight::State::look() {
  const auto now = Clock::now();
  const auto passed = std::min<Clock::duration>(now - looked_at, kLongestLook);
  looked_at = now;
  try {
    retire();
    if (group.failed()) is_over = true;
    if (count == 0 || is_over || group.topology().num_nodes() > 1) return;
    if (const auto failure = failure_of(group, *node)) {
      return fail(ErrorCode::communication, name() + ": " + *failure);
    }
    if (!ring[first].is_whole) return;  // the call that puts it there has its own deadline
    waited += passed;
    look_at_processes();
    if (!is_over) expire();
  } catch (const Error& error) {
    fail(error.code(), error.what());
  }
}

void SumsInFlight::State::look_at_processes() {
  if (waited < look_next) return;
  look_next = waited + kProcessesEvery;
  const std::string gone = ended_ranks(group);
  if (!gone.empty()) fail(ErrorCode::communication, name() + ": " + gone);
}

void SumsInFlight::State::expire() {
  const auto limit = std::chrono::duration_cast<Clock::duration>(group.settings().timeout);
  if (limit == Clock::duration::zero()) return;
  if (!has_warned && waited >= std::min<Clock::duration>(limit / 10, kWarnAtLast)) {
    has_warned = true;
    group.log().warn(name() + " has not ended after " + collectives::in_seconds(waited));
  }
  if (waited < limit) return;
  const bool has_begun = accelerator.done(ring[first].begun);
  if (has_begun && waited < limit + std::min<Clock::duration>(limit, kMostGrace)) return;
  const std::string text = name() + " has waited " + collectives::in_seconds(waited) + " for ";
  const std::string remedy = "; see what they are doing, or raise TUTTI_TIMEOUT";
  if (!has_begun) {
    return fail(ErrorCode::timeout,
                text +
                    "its GPU, whose work has not ended: what was put into its stream before "
                    "the sum keeps the GPUs of the other ranks waiting" +
                    remedy);
  }
  fail(ErrorCode::timeout, text + "its GPU, whose work has not ended" + wait_between() + remedy);
}

/// Aborts the collectives. This is the thread's last act, since an abort may wait for a device that
/// hangs.
void SumsInFlight::State::abort(std::unique_lock<std::mutex>& lock) {
  ended.notify_all();
  lock.unlock();
  node->abort();
  lock.lock();
  is_aborted = true;
  ended.notify_all();
}

void SumsInFlight::State::watch() {
  std::unique_lock lock(mutex);
  looked_at = Clock::now();
  while (!is_over) {
    if (count > 0) {
      changed.wait_for(lock, is_awaited ? kLookWhileAwaited : kLook);
      look();
    } else if (is_awaited) {
      return;
    } else {
      is_asleep = true;
      changed.wait(lock);
      is_asleep = false;
      looked_at = Clock::now();
    }
  }
  abort(lock);
}

SumsInFlight::SumsInFlight(Group& group, std::shared_ptr<Gpus> gpus, int device,
                           std::shared_ptr<NodeCollectives> node)
    : state_(std::make_shared<State>(group, std::move(gpus), device, std::move(node))) {
  try {
    thread_ = std::thread([state = state_, processors = group.processors()] {
      processors->apply();
      state->watch();
    });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::out_of_memory,
                std::string("no thread to watch sums over ranks: ") + error.what());
  }
  state_->gpus->set_check(device, this, [this] {
    check();
    return has_any();
  });
}

void SumsInFlight::finish() noexcept {
  if (!thread_.joinable()) return;
  state_->gpus->set_check(state_->device, this, nullptr);
  bool is_over = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->is_awaited = true;
    state_->changed.notify_all();
    state_->ended.wait(lock, [&] { return state_->count == 0 || state_->is_over; });
    is_over = state_->is_over && !state_->is_aborted;
    if (is_over) {
      state_->ended.wait_for(lock, kForAborts, [&] { return state_->is_aborted; });
      is_over = !state_->is_aborted;
    }
  }
  is_over ? thread_.detach() : thread_.join();
}

void SumsInFlight::begin() {
  await_fewer_than(kMost);
  const std::lock_guard lock(state_->mutex);
  State::Sum& sum = state_->ring[(state_->first + state_->count) % kMost];
  state_->accelerator.record(sum.begun, state_->device, state_->gpus->stream(state_->device));
  ++state_->count;
}

void SumsInFlight::end() {
  const std::lock_guard lock(state_->mutex);
  State::Sum& sum = state_->ring[(state_->first + state_->count - 1) % kMost];
  state_->accelerator.record(sum.ended, state_->device, state_->gpus->stream(state_->device));
  sum.is_whole = true;
  if (state_->is_asleep) state_->changed.notify_all();
}

void SumsInFlight::await() { await_fewer_than(1); }

void SumsInFlight::await_fewer_than(std::size_t count) {
  const auto ready = [&] {
    check();
    const std::lock_guard lock(state_->mutex);
    state_->retire();
    return state_->count < count;
  };
  if (ready()) return;
  state_->group.engine().await(ready, [&] { return state_->name() + state_->wait_between(); });
}

void SumsInFlight::check() {
  const std::lock_guard lock(state_->mutex);
  if (state_->group.failed()) return state_->group.check_usable();
  if (state_->is_over) return;
  if (const auto failure = failure_of(state_->group, *state_->node)) {
    state_->fail_and_throw({ErrorCode::communication, state_->name() + ": " + *failure});
  }
}

bool SumsInFlight::has_any() {
  const std::lock_guard lock(state_->mutex);
  try {
    state_->retire();
  } catch (const Error& error) {
    state_->fail_and_throw(error);
  }
  return state_->count > 0;
}

void SumsInFlight::abort() noexcept {
  std::unique_lock lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
  state_->ended.wait_for(lock, kForAborts, [&] { return state_->is_aborted; });
}

}  // namespace tutti::gpus
