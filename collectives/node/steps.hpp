// SPDX-License-Identifier: Apache-2.0
// Steps: the points within a call at which the ranks of a node wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/node/call_context.hpp"

namespace tutti::collectives {

/// The steps that this rank has done in the current call. All ranks of a node do the same steps.
/// Errors of all waits: communication, timeout (the group has then failed).
class Steps {
 public:
  /// The most chunks of a call. A chunk takes at most two steps, and kStepBits limits their number.
  static constexpr std::size_t kMostChunks = (std::size_t{1} << kStepBits) / 4;

  explicit Steps(const CallContext& call) : call_(call) {}

  /// Begins a new call, which has its sequence number, with no steps done.
  void begin() noexcept { step_ = call_.sequence << kStepBits; }

  /// Signals that this rank has done one more step of the call.
  void signal();
  /// Waits until every rank of the node has done as many steps as this one.
  void wait_for_all() { wait_for_all(step_); }
  /// Waits until every rank has done the first `steps` steps of the call; this rank may have done
  /// more.
  void wait_for_first(std::uint64_t steps) { wait_for_all(in_call(steps)); }
  /// True if every rank of the node has done the first `steps` steps of the call.
  [[nodiscard]] bool have_done(std::uint64_t steps) const;
  /// Waits until the local ranks first .. first + count - 1 have done as many steps as this one.
  void wait_for_ranks(int first, int count) { wait_for_ranks(first, count, step_); }
  /// Waits until a local rank has reached `step`, a value of ControlBlock::step.
  void wait_for(int peer, std::uint64_t step);

 private:
  [[nodiscard]] std::uint64_t in_call(std::uint64_t steps) const {
    return (call_.sequence << kStepBits) + steps;
  }
  void wait_for_all(std::uint64_t step);
  void wait_for_ranks(int first, int count, std::uint64_t step);
  void wait_for_groups(std::uint64_t step);

  const CallContext& call_;
  std::uint64_t step_ = 0;  ///< a value of ControlBlock::step
};

}  // namespace tutti::collectives
