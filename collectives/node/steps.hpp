// SPDX-License-Identifier: Apache-2.0
// The steps within a call, in which the ranks of a node wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/node/call_context.hpp"

namespace tutti::collectives {

/// The steps that this rank has done in the current call. All ranks of a node go through the same
/// ones. Errors of all waits: communication, timeout (the group is failed).
class Steps {
 public:
  /// A chunk takes two steps at most. Their number has few bits beside the call's: see signal().
  static constexpr std::size_t kMostChunks = (std::size_t{1} << kStepBits) / 4;

  explicit Steps(const CallContext& call) : call_(call) {}

  /// A new call, which has its sequence number, begins with none.
  void begin() noexcept { step_ = call_.sequence << kStepBits; }

  /// One more step of this call is done.
  void signal();
  /// Waits until every rank of the node has done as many steps as this one, and waits for all.
  void wait_for_all() { wait_for_all(step_); }
  /// Waits for the first `steps` steps of the call on all ranks, of which this rank may have done
  /// more.
  void wait_for_first(std::uint64_t steps) { wait_for_all(in_call(steps)); }
  /// True if every rank of the node has done the first `steps` steps of the call.
  [[nodiscard]] bool have_done(std::uint64_t steps) const;
  /// Waits until the local ranks first .. first + count - 1 have done as many steps as this one,
  /// whatever they do next.
  void wait_for_ranks(int first, int count) { wait_for_ranks(first, count, step_); }
  /// Waits until a local rank has done `step` steps.
  void wait_for(int peer, std::uint64_t step);

 private:
  [[nodiscard]] std::uint64_t in_call(std::uint64_t steps) const {
    return (call_.sequence << kStepBits) + steps;
  }
  void wait_for_all(std::uint64_t step);
  void wait_for_ranks(int first, int count, std::uint64_t step);
  void wait_for_groups(std::uint64_t step);

  const CallContext& call_;
  std::uint64_t step_ = 0;  ///< as in ControlBlock::step
};

}  // namespace tutti::collectives
