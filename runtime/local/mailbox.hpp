// SPDX-License-Identifier: Apache-2.0
// A Transport between threads of one process.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/transport.hpp"
#include "runtime/local/threads.hpp"

namespace tutti {

/// Where all ranks' messages lie until they are received.
class Mailboxes {
 public:
  struct Message {
    int from;
    int tag;
    std::vector<std::byte> bytes;
  };

  Mailboxes(int num_ranks, MessageFilter filter)
      : boxes_(static_cast<std::size_t>(num_ranks)), filter_(std::move(filter)) {}

  void post(int to_rank, Message message);
  /// The oldest message of this sender and tag.
  std::optional<Message> take(int rank, int from_rank, int tag);
  /// The oldest message of this tag, whoever sent it.
  std::optional<Message> take_any(int rank, int tag);

 private:
  struct Box {
    std::mutex mutex;
    std::deque<Message> messages;
  };
  template <class Match>
  std::optional<Message> take_first(int rank, Match match);

  std::deque<Box> boxes_;
  MessageFilter filter_;
};

class MailboxTransport final : public collectives::Transport {
 public:
  MailboxTransport(std::shared_ptr<Mailboxes> mailboxes, int rank)
      : mailboxes_(std::move(mailboxes)), rank_(rank) {}

  Request send(int to_rank, int tag, std::span<const std::byte> bytes) override;
  Request receive(int from_rank, int tag, std::span<std::byte> bytes) override;
  bool done(Request request) override;
  void progress() override {}
  void notify(int to_rank, const collectives::Notice& notice) noexcept override;
  std::optional<collectives::Notice> poll_notice() override;

 private:
  struct Pending {
    int from;
    int tag;
    std::span<std::byte> bytes;
  };
  /// Completes receives in the order in which they were posted.
  void match();

  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;
  Request next_request_ = 0;
  std::map<Request, Pending> pending_;
};

}  // namespace tutti
