// SPDX-License-Identifier: Apache-2.0
// What an engine does for messages of two ranks, which come between the calls of all.
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

#include "collectives/engine/engine.hpp"

namespace tutti::collectives {

namespace {

/// While it lives, messages of the waiter name a message of two ranks, and so can other ranks.
class MessageInProgress {
 public:
  MessageInProgress(Waiter& waiter, std::atomic<std::uint64_t>& shown, int other_rank,
                    MessageState state, const CallInProgress& progress)
      : waiter_(waiter), shown_(shown), progress_(progress) {
    progress_.is_message = true;
    const auto other = static_cast<std::uint64_t>(other_rank);
    shown_.store(other << 32 | static_cast<std::uint64_t>(state), std::memory_order_relaxed);
    waiter_.set_call(&progress_);
  }
  ~MessageInProgress() {
    waiter_.set_call(nullptr);
    shown_.store(0, std::memory_order_relaxed);
  }
  MessageInProgress(const MessageInProgress&) = delete;
  MessageInProgress& operator=(const MessageInProgress&) = delete;

 private:
  Waiter& waiter_;
  std::atomic<std::uint64_t>& shown_;
  CallInProgress progress_;
};

}  // namespace

Messages& Engine::messages() {
  if (messages_ == nullptr) {
    messages_ = std::make_unique<Messages>(memory_, topology_, waiter_, call_.workers(), tuning_,
                                           transport_, allocate_shared_);
  }
  return *messages_;
}

void Engine::send(int to_rank, const Message& message, FunctionRef<std::string()> describe) {
  check_usable();
  complete_message();
  messages().prepare_to_send(to_rank);
  carry_out_message(to_rank, MessageState::sends, message.size(), describe,
                    [&] { messages_->send(to_rank, message); });
}

void Engine::receive(int from_rank, const Message& message, FunctionRef<std::string()> describe) {
  check_usable();
  messages().await_answer(from_rank);
  complete_message();
  carry_out_message(from_rank, MessageState::receives, message.size(), describe,
                    [&] { messages_->receive(from_rank, message); });
}

/// What an earlier send left behind.
void Engine::wait_for_message() {
  const auto describe = [&] { return messages_->describe_left(); };
  const MessageInProgress progress(waiter_, memory_.control().message, messages_->left_to_rank(),
                                   MessageState::sends, {call_.sequence() + 1, describe});
  try {
    messages_->complete();
  } catch (const Error& error) {
    fail(error);
  }
}

/// Its messages name it as what comes before the next call of all ranks: a rank that has left after
/// the last one is missed.
void Engine::carry_out_message(int other_rank, MessageState state, std::size_t bytes,
                               FunctionRef<std::string()> describe, FunctionRef<void()> body) {
  const char* const name = state == MessageState::sends ? "send" : "receive";
  CallTotals*& totals = message_totals_[static_cast<std::size_t>(state)];
  if (totals == nullptr) {
    const std::uint64_t id = std::hash<std::string_view>()(name);
    totals = &statistics_.totals_for(id, [&] { return CallTotals{.call = name, .keys = {}}; });
  }
  const CountedCall counted(statistics_, name);
  statistics_.count_as(*totals, bytes);
  const MessageInProgress progress(waiter_, memory_.control().message, other_rank, state,
                                   {call_.sequence() + 1, describe});
  try {
    body();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail_by_exception(error.what());
  }
}

}  // namespace tutti::collectives
