// SPDX-License-Identifier: Apache-2.0
// Sleepers: a rank sleeps until another rank of its node gives a signal.
//
// A rank sleeps on a word in the control block of the first rank that it misses. A rank that misses
// several sleeps repeatedly, mostly for the last of them: if every signal of every rank woke it,
// ranks that share its core would lose their turns.
//
// No signal is missed. Either the signalling rank sees the sleeper, because it looks for sleepers
// after a fence that follows its signal, or the sleeper sees the signal, because it tests `ready`
// after a fence that follows its registration. While no wait of the node sleeps, as
// ControlBlock::drowsy tells, a signal costs one read of a line that is seldom written, and no
// fence. If a wake-up were missed all the same, the sleep would end after kLongest.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "collectives/job/function_ref.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

class Sleepers {
 public:
  /// The longest duration of a sleep.
  static constexpr auto kLongest = std::chrono::milliseconds(1);

  Sleepers(const NodeMemory& memory, const Topology& topology)
      : memory_(memory), topology_(topology) {}

  /// Wakes ranks of this node that sleep until this one gives a signal. Call it after each signal.
  void wake() const {
    if (memory_.first().drowsy.load(std::memory_order_relaxed) != 0) look_for_sleepers();
  }
  /// Wakes all ranks of the node that sleep. Callable from any thread.
  static void wake_all(const NodeMemory& memory);
  /// Wakes the thread of this rank that sleeps, if there is one. Callable from any thread.
  void rouse() const;

  /// Sleeps, unless `ready`, until the first of the `missing` ranks that is in this node gives a
  /// signal, but for no longer than `limit`.
  void sleep(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
             std::chrono::nanoseconds limit);
  /// Tells the node that this rank's next waits do not sleep.
  void stay_awake();

 private:
  void look_for_sleepers() const;
  void begin(FunctionRef<bool()> ready);
  void sleep_in_simulation(FunctionRef<bool()> ready);
  [[nodiscard]] ControlBlock& awaited(const std::vector<int>& missing) const;

  const NodeMemory& memory_;
  const Topology& topology_;
  bool is_drowsy_ = false;  ///< this rank is counted in ControlBlock::drowsy
  /// The block on which the thread sleeps, or null.
  std::atomic<ControlBlock*> sleeps_at_{nullptr};
};

}  // namespace tutti::collectives
