// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/workers.hpp"

#include <pthread.h>
#include <system_error>
#include <unistd.h>

#include "collectives/job/leak.hpp"
#include "collectives/job/relax.hpp"
#include "collectives/job/shifted.hpp"
#include "collectives/job/signals_blocked.hpp"

namespace tutti::collectives {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLeastRange = std::size_t{64} << 10;  // a few microseconds of work
constexpr std::size_t kMostRange = std::size_t{1} << 20;    // the longest delay of the others
constexpr std::size_t kRangesEach = 4;  // so that threads of different speeds end together
constexpr auto kSpinForHelpers = std::chrono::microseconds(50);
constexpr int kPollsPerLook = 32;  // the clock takes as long as some polls

/// Polls until `ready` returns true, then returns true. Returns false after `time`.
template <class Ready>
bool polled(Clock::duration time, Ready ready) {
  if (ready()) return true;
  if (time <= Clock::duration::zero()) return false;
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < kPollsPerLook; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return ready();
}

}  // namespace

Workers::Workers(Options options)
    : options_(std::move(options)),
      least_bytes_(options_.threads > 1 ? kSplitBytes : std::numeric_limits<std::size_t>::max()) {}

/// Stops the helpers. In a forked process there are no threads to join, but a std::thread that was
/// not joined must not be destroyed, so it is leaked.
Workers::~Workers() {
  if (helpers_.empty()) return;
  if (process_ != getpid()) {
    leak_until_exit(std::make_shared<std::vector<std::thread>>(std::move(helpers_)));
    return;
  }
  ends_.store(true);
  state_.fetch_add(2);  // keeps the job closed
  state_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

std::size_t Workers::range_bytes(std::size_t bytes) const {
  const std::size_t ranges = kRangesEach * static_cast<std::size_t>(options_.threads);
  const std::size_t each = std::clamp(bytes / ranges, kLeastRange, kMostRange);
  return (each + kCutBytes - 1) / kCutBytes * kCutBytes;
}

void Workers::make_helpers() {
  made_ = true;
  process_ = getpid();
  const SignalsBlocked blocked;
  try {
    helpers_.reserve(static_cast<std::size_t>(options_.threads - 1));
    for (int number = 1; number < options_.threads; ++number) {
      helpers_.emplace_back([this, number] { help(number); });
    }
  } catch (const std::exception& error) {
    if (!options_.warn) return;
    options_.warn("TUTTI_THREADS: made " + std::to_string(helpers_.size()) + " of " +
                  std::to_string(options_.threads - 1) + " helper threads: " + error.what() +
                  "; large calls take longer. Raise the limit of threads (ulimit -u, the cgroup's "
                  "pids.max), or set TUTTI_THREADS=1");
  }
}

void Workers::await_change(std::uint32_t seen) {
  const auto changed = [&] { return state_.load() != seen; };
  if (!polled(options_.spin, changed)) state_.wait(seen);
}

/// The loop of a helper. It registers in `inside_` before it tests whether a job is open, and the
/// owner closes the job before it tests whether a helper is inside. All these accesses are
/// sequentially consistent, so either a late helper sees that the job is closed, or the owner sees
/// the helper and waits for it.
void Workers::help(int number) {
  const std::string name = "tutti-" + std::to_string(number);
  pthread_setname_np(pthread_self(), name.c_str());
  if (options_.processors != nullptr) options_.processors->apply();
  for (std::uint32_t seen = 0; !ends_.load();) {
    await_change(seen);
    inside_.fetch_add(1);
    seen = state_.load();
    if ((seen & 1) != 0) {
      std::fesetenv(&job_.mode);
      take_pieces();
    }
    if (inside_.fetch_sub(1) == 1) inside_.notify_all();
  }
}

void Workers::take_pieces() {
  for (std::size_t piece = next_++; piece < job_.pieces; piece = next_++) {
    try {
      (*job_.piece)(piece);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      next_.store(job_.pieces);
    }
  }
  streaming_fence();  // makes writes past the caches visible before this thread signals its end
}

void Workers::run(std::size_t pieces, FunctionRef<void(std::size_t)> piece) {
  if (!made_ && options_.threads > 1 && pieces > 1) make_helpers();
  const bool has_help = pieces > 1 && !helpers_.empty() && process_ == getpid();
  job_.piece = &piece;
  job_.pieces = pieces;
  next_.store(0);
  if (!has_help) {
    take_pieces();
  } else {
    std::fegetenv(&job_.mode);
    state_.fetch_add(1);
    state_.notify_all();
    take_pieces();
    close();
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Workers::reduce_together(const Reduction& reduction, std::span<const std::byte* const> sources,
                              std::span<std::byte* const> destinations, std::size_t count,
                              WritePolicy stores) {
  const std::size_t width = size_of(reduction.to);
  over(count, width, [&](std::size_t first, std::size_t now) {
    Shifted from(sources, first * size_of(reduction.from));
    Shifted to(destinations, first * width);
    collectives::reduce(reduction, from.all(), to.all(), now, stores);
  });
}

/// Closes the job once all pieces are taken, and waits for helpers that are still in one.
void Workers::close() {
  state_.fetch_add(1);
  const auto all_out = [&] { return inside_.load() == 0; };
  while (!polled(kSpinForHelpers, all_out)) {
    const std::uint32_t now = inside_.load();
    if (now != 0) inside_.wait(now);
  }
}

}  // namespace tutti::collectives
