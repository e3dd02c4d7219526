// SPDX-License-Identifier: Apache-2.0
// Sums over ranks that are in a GPU's stream, and for which no call waits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/gpu/gpus.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// The sums in flight, and a thread that watches them: it fails the group and aborts the node's
/// collectives when NCCL reports an error, when a process of the node ends, or when a sum does not
/// end by the deadline, and aborts them when the group has failed for another reason. So no stream
/// waits for ever, whoever waits for it.
class SumsInFlight {
 public:
  /// The most sums in flight: with more of them the next one waits, so a host runs at most so far
  /// ahead of its GPU.
  static constexpr std::size_t kMost = 16;

  /// Errors: out_of_memory, if there is no thread.
  SumsInFlight(Group& group, std::shared_ptr<Gpus> gpus, int device,
               std::shared_ptr<NodeCollectives> node);
  ~SumsInFlight() { finish(); }
  SumsInFlight(const SumsInFlight&) = delete;
  SumsInFlight& operator=(const SumsInFlight&) = delete;

  /// Surround the calls that put a sum into the device's stream. Errors, of begin(): timeout and
  /// communication (failed), where it waits for room.
  void begin();
  void end();

  /// Returns when no sum is in flight. Errors: timeout, communication (failed).
  void await();
  /// Throws the error of a sum; waits for nothing. Any thread.
  void check();
  /// Waits for the sums that are in flight, which need no further call of any rank, and for which
  /// the deadline holds. Sums are not watched after it.
  void finish() noexcept;
  /// Ends work in streams when the group has failed. Waits for that end, but no longer than a
  /// second.
  void abort() noexcept;

 private:
  struct State;
  void await_fewer_than(std::size_t count);
  [[nodiscard]] bool has_any();

  std::shared_ptr<State> state_;  ///< shared with the thread, which an abort may keep
  std::thread thread_;
};

}  // namespace tutti::gpus
