// SPDX-License-Identifier: Apache-2.0
// MessageCalls: messages between two ranks as calls, which waits name, which are counted, and whose
// errors fail the group.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/messages.hpp"
#include "collectives/engine/statistics_collector.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// This rank's messages, which are made between collective calls.
class MessageCalls {
 public:
  MessageCalls(Call& call, const Tuning& tuning, Transport* transport,
               AllocateShared allocate_shared, StatisticsCollector& statistics);

  /// Make one side of a message between two ranks, see Messages; `describe` returns the call in
  /// words. A small message may still be pending when its send returns. Then this rank's next call,
  /// of any kind, first waits until it has been received, and throws what the send would have
  /// thrown. Errors: mismatch, on both ranks; communication, timeout (failed).
  void send(int to_rank, const Message& message, FunctionRef<std::string()> describe);
  void receive(int from_rank, const Message& message, FunctionRef<std::string()> describe);
  /// See Meetings::meet(); a rank that has left a message waits for its receiver first.
  [[nodiscard]] std::vector<int> meet(std::span<const Partner> partners, int awaited);
  /// Waits until the message that an earlier send has left is received. Every call begins with it,
  /// including calls in the background. Errors: as send().
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
  CallTotals* totals_[3] = {};          ///< indexed by MessageState
};

}  // namespace tutti::collectives
