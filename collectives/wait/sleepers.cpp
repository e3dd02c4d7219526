// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/sleepers.hpp"

#include "collectives/job/futex.hpp"
#include "collectives/job/relax.hpp"

namespace tutti::collectives {

namespace {

constexpr int kPollsAtFirst = 100;  // takes some microseconds

/// Wakes the threads that sleep until this rank gives a signal.
void wake_sleepers_of(ControlBlock& rank) {
  rank.wakeups.fetch_add(1, std::memory_order_release);
  futex_wake(rank.wakeups);
}

}  // namespace

void Sleepers::wake_all(const NodeMemory& memory) {
  if (memory.pace != nullptr) return memory.pace->signalled();
  for (const Peer& peer : memory.peers) wake_sleepers_of(peer.control());
}

void Sleepers::look_for_sleepers() const {
  if (memory_.pace != nullptr) return memory_.pace->signalled();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ControlBlock& own = memory_.control();
  if (own.sleepers.load(std::memory_order_relaxed) != 0) wake_sleepers_of(own);
}

void Sleepers::rouse() const {
  if (ControlBlock* const other = sleeps_at_.load()) wake_sleepers_of(*other);
}

void Sleepers::sleep(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
                     std::chrono::nanoseconds limit) {
  if (memory_.pace != nullptr) return sleep_in_simulation(ready);
  ControlBlock& other = awaited(missing());
  if (!is_drowsy_) begin(ready);
  sleeps_at_.store(&other);
  const std::uint32_t seen = other.wakeups.load(std::memory_order_acquire);
  other.sleepers.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!ready()) futex_wait(other.wakeups, seen, limit);
  other.sleepers.fetch_sub(1, std::memory_order_relaxed);
  sleeps_at_.store(nullptr);
}

void Sleepers::sleep_in_simulation(FunctionRef<bool()> ready) {
  ControlBlock& node = memory_.first();
  node.drowsy.fetch_add(1, std::memory_order_relaxed);
  if (!ready()) memory_.pace->wait();
  node.drowsy.fetch_sub(1, std::memory_order_relaxed);
}

/// Returns the block of the first missing rank that is in this node; if there is none, this rank's
/// own.
ControlBlock& Sleepers::awaited(const std::vector<int>& missing) const {
  for (const int rank : missing) {
    if (const int local = topology_.local_rank_of(rank); local >= 0) {
      return memory_.peers[static_cast<std::size_t>(local)].control();
    }
  }
  return memory_.control();
}

/// Announces that this rank sleeps in its waits: from now on the others look for sleepers after
/// each signal. A rank that gave a signal a moment ago may not have seen this, and its signal may
/// not be visible here yet. So this rank polls for longer than that takes, before it sleeps.
void Sleepers::begin(FunctionRef<bool()> ready) {
  is_drowsy_ = true;
  memory_.first().drowsy.fetch_add(1, std::memory_order_seq_cst);
  for (int i = 0; i < kPollsAtFirst && !ready(); ++i) relax();
}

void Sleepers::stay_awake() {
  if (!is_drowsy_) return;
  is_drowsy_ = false;
  memory_.first().drowsy.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tutti::collectives
