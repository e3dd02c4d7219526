// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/sockets/pending.hpp"

#include <algorithm>

namespace tutti::mpi::sockets {

namespace {

/// Steps and messages of a communicator never meet each other.
constexpr std::uint64_t kOfSteps = std::uint64_t{1} << 63;

template <class Messages>
bool all_done(const Messages& messages) {
  return std::all_of(messages.begin(), messages.end(),
                     [](const auto& message) { return message->is_done; });
}

template <class Messages>
Trouble first_trouble(const Messages& messages) {
  const auto found = std::find_if(messages.begin(), messages.end(), [](const auto& message) {
    return message->trouble != Trouble::none;
  });
  return found == messages.end() ? Trouble::none : (*found)->trouble;
}

}  // namespace

PendingMeeting::PendingMeeting(Mailbox& mailbox, Members& members, Bytes own,
                               std::span<std::byte> answer, Combine combine)
    : subject_{members.context | kOfSteps, members.steps++},
      ranks_(members.ranks),
      is_first_(members.own == 0),
      own_(std::move(own)),
      answer_(answer),
      combine_(std::move(combine)) {
  if (!is_first_) {
    sent_.push_back(mailbox.send(ranks_.front(), subject_, own_));
    received_.push_back(mailbox.receive(ranks_.front(), subject_, answer_));
    return;
  }
  std::for_each(ranks_.begin() + 1, ranks_.end(), [&](int rank) {
    received_.push_back(mailbox.receive(rank, subject_, std::nullopt));
  });
}

bool PendingMeeting::advance_first(Mailbox& mailbox) {
  if (!has_answer_) {
    std::vector<Bytes> all{std::move(own_)};
    for (const auto& one : received_) all.push_back(std::move(one->taken));
    own_ = combine_(std::move(all));
    std::copy_n(own_.begin(), std::min(own_.size(), answer_.size()), answer_.begin());
    std::for_each(ranks_.begin() + 1, ranks_.end(),
                  [&](int rank) { sent_.push_back(mailbox.send(rank, subject_, own_)); });
    has_answer_ = true;
  }
  return all_done(sent_);
}

bool PendingMeeting::advance(Mailbox& mailbox) {
  if (!all_done(received_)) return false;
  return is_first_ ? advance_first(mailbox) : all_done(sent_);
}

Trouble PendingMeeting::trouble() const {
  const Trouble in_sent = first_trouble(sent_);
  return in_sent == Trouble::none ? first_trouble(received_) : in_sent;
}

}  // namespace tutti::mpi::sockets
