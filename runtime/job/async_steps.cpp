// SPDX-License-Identifier: Apache-2.0
// What asynchronous calls wait for, and how much of them is hidden behind the program's work. By
// whoever has the engine. And whether calls may go in slices.
#include <algorithm>
#include <new>

#include "runtime/job/async_calls.hpp"

namespace tutti {

/// What a round has said of a queue's first job. A rank without any job makes no round, so others
/// wait for it there.
void AsyncCalls::note(AsyncJob& job, std::uint8_t count, std::uint64_t now) const {
  collectives::AsyncTimes& times = job.times;
  if (count <= kLastNamed) times.last_rank = count;
  if (count != kHasJob || times.met != 0) return;
  times.met = now;
  if (times.last_rank < 0) times.last_rank = engine_.statistics().waited_for();
}

/// The waits for a step end after it, so it is told when the next one begins.
void AsyncCalls::begin_step() {
  if (step_.end != 0) tell_step();
  if (step_.begin != 0) return;
  step_.begin = collectives::ticks();
  const std::lock_guard lock(mutex_);
  for (const Client& client : clients_) {
    for (const Queue& queue : client.queues) {
      if (queue.empty()) continue;
      step_.begin = std::min(step_.begin, queue.front()->times.submitted);
    }
  }
}

void AsyncCalls::tell_step() {
  step_.waited += count_waits();
  collectives::SpanLog* const spans = engine_.statistics().spans();
  if (spans != nullptr) spans->add(step_);
  step_ = {};
}

/// What the program has waited since the last time, in ticks.
std::uint64_t AsyncCalls::count_waits() {
  const std::uint64_t waits = waiting_->waits.exchange(0);
  const std::uint64_t ticks = waiting_->waited_ticks.exchange(0);
  if (waits != 0) engine_.statistics().count_async_waits(waits, ticks);
  return ticks;
}

/// A lack of memory for counting does not end the job.
void AsyncCalls::settle() noexcept {
  try {
    if (step_.end != 0) {
      tell_step();
    } else {
      count_waits();
    }
  } catch (const std::bad_alloc&) {
  }
}

/// Where MPI sums, its order may be another one for each place in a message.
bool AsyncCalls::may_slice() const {
  const bool by_mpi = has_network_ && engine_.tuning().exchange == collectives::Exchange::mpi;
  return engine_.topology().size > 1 && !by_mpi;
}

}  // namespace tutti
