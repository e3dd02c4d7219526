// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include "tutti/error.hpp"

namespace tutti {

namespace {
constexpr int kNoticeTag = -1;
}

void Mailboxes::post(int to_rank, Message message) {
  if (filter_ && !filter_(message.from, to_rank, message.tag)) return;
  Box& box = boxes_[static_cast<std::size_t>(to_rank)];
  const std::lock_guard lock(box.mutex);
  box.messages.push_back(std::move(message));
}

template <class Match>
std::optional<Mailboxes::Message> Mailboxes::take_first(int rank, Match match) {
  Box& box = boxes_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(box.mutex);
  const auto found = std::find_if(box.messages.begin(), box.messages.end(), match);
  if (found == box.messages.end()) return std::nullopt;
  Message message = std::move(*found);
  box.messages.erase(found);
  return message;
}

std::optional<Mailboxes::Message> Mailboxes::take(int rank, int from_rank, int tag) {
  return take_first(rank, [&](const Message& message) {
    return message.from == from_rank && message.tag == tag;
  });
}

std::optional<Mailboxes::Message> Mailboxes::take_any(int rank, int tag) {
  return take_first(rank, [&](const Message& message) { return message.tag == tag; });
}

collectives::Transport::Request MailboxTransport::send(int to_rank, int tag,
                                                       std::span<const std::byte> bytes) {
  mailboxes_->post(to_rank, {rank_, tag, {bytes.begin(), bytes.end()}});
  return next_request_++;
}

collectives::Transport::Request MailboxTransport::receive(int from_rank, int tag,
                                                          std::span<std::byte> bytes) {
  pending_[next_request_] = {from_rank, tag, bytes};
  return next_request_++;
}

bool MailboxTransport::done(Request request) {
  match();
  return pending_.find(request) == pending_.end();
}

void MailboxTransport::match() {
  std::vector<std::pair<int, int>> empty;  // senders and tags that have nothing for us yet
  for (auto it = pending_.begin(); it != pending_.end();) {
    const Pending& wanted = it->second;
    const std::pair source(wanted.from, wanted.tag);
    const bool known_empty = std::find(empty.begin(), empty.end(), source) != empty.end();
    auto message = known_empty ? std::nullopt : mailboxes_->take(rank_, wanted.from, wanted.tag);
    if (!message) {
      empty.push_back(source);
      ++it;
      continue;
    }
    if (message->bytes.size() > wanted.bytes.size()) {
      throw Error(ErrorCode::communication, "a message is longer than its receive buffer");
    }
    std::copy(message->bytes.begin(), message->bytes.end(), wanted.bytes.begin());
    it = pending_.erase(it);
  }
}

void MailboxTransport::notify(int to_rank, const collectives::Notice& notice) noexcept {
  const auto bytes = std::as_bytes(std::span(&notice, 1));
  mailboxes_->post(to_rank, {rank_, kNoticeTag, {bytes.begin(), bytes.end()}});
}

std::optional<collectives::Notice> MailboxTransport::poll_notice() {
  const auto message = mailboxes_->take_any(rank_, kNoticeTag);
  if (!message) return std::nullopt;
  collectives::Notice notice;
  std::memcpy(&notice, message->bytes.data(), sizeof notice);
  return notice;
}

}  // namespace tutti
