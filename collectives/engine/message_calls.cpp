// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/message_calls.hpp"

#include <atomic>
#include <functional>
#include <string_view>
#include <utility>

namespace tutti::collectives {

namespace {

/// During its lifetime, messages of the waiter describe a message between two ranks, which other
/// ranks can see, too. It counts as made before the next call of all ranks, so that a rank which
/// has left after the last call is noticed.
class MessageInProgress {
 public:
  MessageInProgress(const Call& call, int other_rank, MessageState state,
                    FunctionRef<std::string()> describe)
      : shown_(call.memory().control().message),
        named_(call.waiter(), {call.sequence() + 1, describe, /*is_message=*/true}) {
    const auto other = static_cast<std::uint64_t>(other_rank);
    shown_.store(other << 32 | static_cast<std::uint64_t>(state), std::memory_order_relaxed);
  }
  ~MessageInProgress() { shown_.store(0, std::memory_order_relaxed); }
  MessageInProgress(const MessageInProgress&) = delete;
  MessageInProgress& operator=(const MessageInProgress&) = delete;

 private:
  std::atomic<std::uint64_t>& shown_;
  NamedCall named_;
};

}  // namespace

MessageCalls::MessageCalls(Call& call, const Tuning& tuning, Transport* transport,
                           AllocateShared allocate_shared, StatisticsCollector& statistics)
    : call_(call),
      tuning_(tuning),
      transport_(transport),
      allocate_shared_(std::move(allocate_shared)),
      statistics_(statistics) {}

Messages& MessageCalls::messages() {
  if (messages_ == nullptr) {
    messages_ = std::make_unique<Messages>(call_.memory(), call_.topology(), call_.waiter(),
                                           call_.workers(), tuning_, transport_, allocate_shared_);
  }
  return *messages_;
}

void MessageCalls::send(int to_rank, const Message& message, FunctionRef<std::string()> describe) {
  call_.waiter().check_failure();
  complete();
  messages().prepare_to_send(to_rank);
  carry_out(to_rank, MessageState::sends, message.size(), describe,
            [&] { messages_->send(to_rank, message); });
}

void MessageCalls::receive(int from_rank, const Message& message,
                           FunctionRef<std::string()> describe) {
  call_.waiter().check_failure();
  messages().await_answer(from_rank);
  complete();
  carry_out(from_rank, MessageState::receives, message.size(), describe,
            [&] { messages_->receive(from_rank, message); });
}

std::vector<int> MessageCalls::meet(std::span<const Partner> partners, int awaited) {
  call_.waiter().check_failure();
  complete();
  messages().prepare_to_send(partners.front().rank);
  const auto describe = [&] {
    return awaited < 0 ? std::string("messages before the next call of all ranks")
                       : "wait for a message of rank " + std::to_string(awaited);
  };
  const MessageInProgress progress(call_, awaited < 0 ? partners.front().rank : awaited,
                                   MessageState::receives, describe);
  std::vector<int> met;
  or_fail([&] { met = messages_->meetings().meet(partners, awaited, call_.sequence()); });
  return met;
}

void MessageCalls::wait_for_left() {
  const auto describe = [&] { return messages_->describe_left(); };
  const MessageInProgress progress(call_, messages_->left_to_rank(), MessageState::sends, describe);
  or_fail([&] { messages_->complete(); });
}

void MessageCalls::carry_out(int other_rank, MessageState state, std::size_t bytes,
                             FunctionRef<std::string()> describe, FunctionRef<void()> body) {
  const char* const name = state == MessageState::sends ? "send" : "receive";
  CallTotals*& totals = totals_[static_cast<std::size_t>(state)];
  if (totals == nullptr) {
    const std::uint64_t id = std::hash<std::string_view>()(name);
    totals = &statistics_.totals_for(id, [&] { return CallTotals{.call = name, .keys = {}}; });
  }
  const CountedCall counted(statistics_, name);
  statistics_.count_as(*totals, bytes);
  const MessageInProgress progress(call_, other_rank, state, describe);
  or_fail(body);
}

/// Runs `body`, and makes an error of this rank a failure of the group, unless both ranks of the
/// message know of it.
void MessageCalls::or_fail(FunctionRef<void()> body) {
  catching(body, [&](const LocalError& error) {
    if (error.scope != ErrorScope::caller) throw;
    call_.waiter().fail(error);
  });
}

}  // namespace tutti::collectives
