// SPDX-License-Identifier: Apache-2.0
// A message between two ranks, beside its data: a call that waits name, that is counted, and
// that fails for all ranks.
#pragma once

#include <memory>
#include <string>

#include "collectives/engine/messages.hpp"
#include "collectives/engine/statistics_collector.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// This rank's messages, which come between the calls of all.
class MessageCalls {
 public:
  MessageCalls(Call& call, const Tuning& tuning, Transport* transport,
               AllocateShared allocate_shared, StatisticsCollector& statistics);

  /// A message between two ranks; `describe` is the call in words. See Messages. A small message
  /// may be taken after its send has returned; then this rank's next call, of any kind, waits for
  /// that first, and throws what the send would have thrown, before anything else. Errors:
  /// mismatch, on both ranks; communication, timeout (failed).
  void send(int to_rank, const Message& message, FunctionRef<std::string()> describe);
  void receive(int from_rank, const Message& message, FunctionRef<std::string()> describe);
  /// Waits until what an earlier send has left is taken. Every call begins with it, also those that
  /// go on while the program computes. Errors: as send().
  void complete() {
    if (messages_ != nullptr && messages_->has_left()) wait_for_left();
  }

 private:
  [[nodiscard]] Messages& messages();
  void wait_for_left();
  void carry_out(int other_rank, MessageState state, std::size_t bytes,
                 FunctionRef<std::string()> describe, FunctionRef<void()> body);
  void or_fail(FunctionRef<void()> body);

  Call& call_;
  const Tuning& tuning_;
  Transport* transport_;
  AllocateShared allocate_shared_;
  StatisticsCollector& statistics_;
  std::unique_ptr<Messages> messages_;  ///< null before the first message
  CallTotals* totals_[3] = {};          ///< by MessageState
};

}  // namespace tutti::collectives
