// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/node_mail.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/job/leak.hpp"
#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

/// If all handshakes arrive within this time, they were on their way before this node sent its own,
/// and this node itself was the last.
constexpr auto kTogether = std::chrono::microseconds(30);

}  // namespace

Handshake Handshake::of(const Call& call, std::size_t partial_bytes) {
  static_assert(sizeof(Handshake) <= kValuesBegin);
  const Announcement& announcement = call.announcement();
  return {call.sequence(),
          call.signature(),
          announcement.node_agrees() ? 1u : 0u,
          announcement.stop_requested() ? 1u : 0u,
          partial_bytes,
          announcement.last_rank(),
          announcement.longest_time()};
}

Handshake Handshake::read(std::span<const std::byte> message) {
  Handshake handshake;
  std::memcpy(&handshake, message.data(), sizeof handshake);
  return handshake;
}

void Handshake::write(std::span<std::byte> message) const {
  std::memcpy(message.data(), this, sizeof *this);
}

NodeMail::NodeMail(const Topology& topology, Waiter& waiter, Transport& transport,
                   std::shared_ptr<const void> buffers)
    : topology_(topology), waiter_(waiter), transport_(transport), buffers_(std::move(buffers)) {}

NodeMail::~NodeMail() {
  if (!receives_.empty() || !sends_.empty()) leak_until_exit(std::move(buffers_));
}

void NodeMail::send(int to_node, int tag, std::span<const std::byte> message) {
  const int rank = topology_.nodes[to_node].front();
  sends_.push_back({to_node, transport_.send(rank, tag, message)});
}

void NodeMail::receive(int node, int tag, std::span<std::byte> bytes) {
  receives_.push_back({node, transport_.receive(topology_.nodes[node].front(), tag, bytes)});
}

void NodeMail::send_handshake(int to_node, std::span<const std::byte> whole) {
  for (std::size_t sent = 0; sent < whole.size(); sent += kMostAtOnce) {
    send(to_node, kHandshakeTag, whole.subspan(sent, std::min(kMostAtOnce, whole.size() - sent)));
  }
}

/// Starts to receive a handshake. Its first message tells how much follows.
void NodeMail::receive_handshake(int from_node, std::span<std::byte> room) {
  receive(from_node, kHandshakeTag, room.first(std::min(kMostAtOnce, room.size())));
  receives_.back().whole = room;
}

/// Starts to receive the messages that follow the first one of a handshake.
void NodeMail::receive_rest(int from_node, std::span<std::byte> whole) {
  if (whole.size() <= kMostAtOnce) return;
  const std::size_t length = Handshake::read(whole).length();
  for (std::size_t begin = kMostAtOnce; begin < length; begin += kMostAtOnce) {
    receive(from_node, kHandshakeTag, whole.subspan(begin, std::min(kMostAtOnce, length - begin)));
  }
}

bool NodeMail::wait_for_handshakes() {
  const auto begin = waiter_.now();
  last_node_ = -1;
  wait();
  return last_node_ >= 0 && waiter_.now() - begin > kTogether;
}

void NodeMail::wait(int from_node) {
  const auto is_awaited = [&](const UnderWay& message) {
    return from_node < 0 || message.node == from_node;
  };
  const auto ready = [&] {
    first_ones_.clear();
    std::erase_if(receives_, [&](const UnderWay& expected) {
      if (transport_.done(expected.request)) {
        if (!expected.whole.empty()) first_ones_.push_back(expected);
        return true;
      }
      last_node_ = expected.node;
      return false;
    });
    for (const UnderWay& first : first_ones_) receive_rest(first.node, first.whole);
    std::erase_if(sends_, [&](const UnderWay& sent) { return transport_.done(sent.request); });
    if (std::any_of(receives_.begin(), receives_.end(), is_awaited)) return false;
    return from_node >= 0 || sends_.empty();
  };
  const auto missing = [&] {  // ranks that have sent nothing; if none, those that have not received
    std::vector<int> ranks;
    for (const UnderWay& message : receives_.empty() ? sends_ : receives_) {
      if (is_awaited(message)) ranks.push_back(topology_.nodes[message.node].front());
    }
    return ranks;
  };
  waiter_.until_messages(ready, missing);
}

}  // namespace tutti::collectives
