// SPDX-License-Identifier: Apache-2.0
// How a rank sleeps until another rank of its node gives a signal.
//
// A rank sleeps on a word in the block of one that it waits for, the first of those that are
// missing. Who waits for several sleeps again then, mostly for the last of them: to be woken by
// each signal of each rank would cost ranks that share a core their turns.
//
// No signal is missed. Either its rank sees the sleeper, because it looks after a fence that
// follows the signal, or the sleeper sees the signal, because it looks after a fence that follows
// its flag. Where no wait of the node sleeps, which ControlBlock::drowsy says, a signal costs one
// look at a line that nobody writes, and no fence. Should a wake-up be missed all the same, it
// costs what a sleep takes at most.
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
  static constexpr auto kLongest = std::chrono::milliseconds(1);  ///< that a sleep takes

  Sleepers(const NodeMemory& memory, const Topology& topology)
      : memory_(memory), topology_(topology) {}

  /// Wakes ranks of this node that sleep until this one gives a signal; call it after each.
  void wake() const {
    if (memory_.first().drowsy.load(std::memory_order_relaxed) != 0) look_for_sleepers();
  }
  /// Wakes all ranks of the node that sleep. Any thread.
  static void wake_all(const NodeMemory& memory);
  /// Wakes the thread that sleeps here, if one does. Any thread.
  void rouse() const;

  /// Sleeps, unless `ready`, until the first of the `missing` ranks that is in this node gives a
  /// signal, or for so long.
  void sleep(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
             std::chrono::nanoseconds limit);
  /// The next waits of this rank do not sleep.
  void stay_awake();

 private:
  void look_for_sleepers() const;
  void begin(FunctionRef<bool()> ready);
  void sleep_in_simulation(FunctionRef<bool()> ready);
  [[nodiscard]] ControlBlock& awaited(const std::vector<int>& missing) const;

  const NodeMemory& memory_;
  const Topology& topology_;
  bool is_drowsy_ = false;                         ///< this rank is counted in ControlBlock::drowsy
  std::atomic<ControlBlock*> sleeps_at_{nullptr};  ///< whose signal wakes the thread that sleeps
};

}  // namespace tutti::collectives
