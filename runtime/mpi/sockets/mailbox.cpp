// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/sockets/mailbox.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "runtime/mpi/sockets/address.hpp"

namespace tutti::mpi::sockets {

bool Mailbox::is_for(const Message& message, int from, const Subject& subject) {
  return message.subject.context == subject.context &&
         (subject.tag == kAnyTagOfPeer || message.subject.tag == subject.tag) &&
         (from == kAnyPeer || message.from == from);
}

void Mailbox::hand_over(Message&& message, Receiving& receiving) {
  receiving.is_done = true;
  receiving.from = message.from;
  if (!receiving.place) {
    receiving.taken = std::move(message.bytes);
  } else if (message.bytes.size() > receiving.place->size()) {
    receiving.trouble = Trouble::truncated;
  } else {
    std::copy(message.bytes.begin(), message.bytes.end(), receiving.place->begin());
  }
}

void Mailbox::deliver(Message&& message) {
  const auto asked = std::find_if(asked_.begin(), asked_.end(), [&](const auto& receiving) {
    return is_for(message, receiving->from, receiving->subject);
  });
  if (asked == asked_.end()) return unasked_.push_back(std::move(message));
  hand_over(std::move(message), **asked);
  asked_.erase(asked);
}

std::shared_ptr<Sending> Mailbox::send(int to, Subject subject, std::span<const std::byte> bytes) {
  auto sending = std::make_shared<Sending>(Sending{subject, bytes});
  if (to == job_.rank) {
    sending->is_done = true;
    deliver({to, subject, {bytes.begin(), bytes.end()}});
    return sending;
  }
  leaving_[static_cast<std::size_t>(to)].push_back(sending);
  send_some(to);
  return sending;
}

std::shared_ptr<Receiving> Mailbox::receive(int from, Subject subject,
                                            std::optional<std::span<std::byte>> place) {
  auto receiving = std::make_shared<Receiving>(Receiving{subject, from, place, {}});
  const auto there = std::find_if(unasked_.begin(), unasked_.end(), [&](const Message& message) {
    return is_for(message, from, subject);
  });
  if (there == unasked_.end()) {
    asked_.push_back(receiving);
  } else {
    hand_over(std::move(*there), *receiving);
    unasked_.erase(there);
  }
  return receiving;
}

void Mailbox::forget(const std::shared_ptr<Receiving>& receiving) { asked_.remove(receiving); }

std::optional<Mailbox::Found> Mailbox::find(int from, Subject subject) const {
  const auto there = std::find_if(unasked_.begin(), unasked_.end(), [&](const Message& message) {
    return is_for(message, from, subject);
  });
  if (there == unasked_.end()) return std::nullopt;
  return Found{there->from, there->bytes.size()};
}

/// The pieces of a message follow each other, and each one begins with the message's head.
void Mailbox::send_some(int to) {
  auto& queue = leaving_[static_cast<std::size_t>(to)];
  const Address address(job_.peers[static_cast<std::size_t>(to)].mailbox);
  while (!queue.empty()) {
    Sending& sending = *queue.front();
    Head head{sending.subject.context, sending.bytes.size(), job_.rank, sending.subject.tag};
    const auto piece = sending.bytes.subspan(
        sending.sent, std::min(kPieceBytes, sending.bytes.size() - sending.sent));
    iovec parts[2] = {{&head, sizeof head}, {const_cast<std::byte*>(piece.data()), piece.size()}};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(address.get());
    message.msg_namelen = address.length();
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    if (sendmsg(job_.mailbox.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) return;
      sending.trouble = Trouble::unreachable;
    }
    sending.sent += piece.size();
    if (sending.trouble == Trouble::none && sending.sent < sending.bytes.size()) continue;
    sending.is_done = true;
    queue.pop_front();
  }
}

void Mailbox::take_piece(const Head& head, std::span<const std::byte> bytes) {
  Arriving& arriving = arriving_[static_cast<std::size_t>(head.from)];
  if (arriving.missing == 0) {
    arriving.message = {head.from, {head.context, head.tag}, {}};
    arriving.message.bytes.reserve(head.bytes);
    arriving.missing = head.bytes;
  }
  auto& whole = arriving.message.bytes;
  whole.insert(whole.end(), bytes.begin(), bytes.end());
  arriving.missing -= std::min(arriving.missing, bytes.size());
  if (arriving.missing == 0) deliver(std::move(arriving.message));
}

/// False if nothing has come. What another user has sent is no message of this job.
bool Mailbox::take_one() {
  Head head{};
  iovec parts[2] = {{&head, sizeof head}, {piece_.data(), piece_.size()}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = recvmsg(job_.mailbox.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) return errno == EINTR;
  const cmsghdr* const about = CMSG_FIRSTHDR(&message);
  if (about == nullptr || about->cmsg_type != SCM_CREDENTIALS) return true;
  ucred sender{};
  std::memcpy(&sender, CMSG_DATA(about), sizeof sender);
  const bool is_known = head.from >= 0 && static_cast<std::size_t>(head.from) < arriving_.size();
  const auto bytes = static_cast<std::size_t>(length);
  if (sender.uid != geteuid() || bytes < sizeof head || !is_known) return true;
  take_piece(head, std::span<const std::byte>(piece_).first(bytes - sizeof head));
  return true;
}

void Mailbox::look() {
  while (take_one()) {
  }
  for (std::size_t to = 0; to < leaving_.size(); ++to) {
    if (!leaving_[to].empty()) send_some(static_cast<int>(to));
  }
}

}  // namespace tutti::mpi::sockets
