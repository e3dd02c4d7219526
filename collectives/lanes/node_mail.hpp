// SPDX-License-Identifier: Apache-2.0
// NodeMail: messages by which the first ranks of the nodes agree on a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/node/call.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// A node's statement on a call, which precedes its data. If a message has several handshakes, only
/// the sender's own tells which rank was last, as far as the sender knows.
struct Handshake {
  /// Offset of the data, which begins on a new line, as tensors do.
  static constexpr std::size_t kValuesBegin = 128;

  std::uint64_t sequence;
  Signature signature;
  std::uint32_t agrees;          ///< 1 if the ranks of the node agree among themselves
  std::uint32_t stop_requested;  ///< 1 if one of them was asked to stop
  std::uint64_t partial_bytes;   ///< size of one partial sum
  /// The last rank to announce the call, of those that the sender has heard of.
  std::int32_t last_rank;
  std::uint32_t last_time;  ///< of the previous call, on the nodes that the handshake stands for
  std::uint64_t bytes_here = 0;  ///< size of the data that follows
  std::uint32_t by_halves = 0;   ///< 1 if the messages carry halves of the sums

  /// Returns this node's statement on a call of which it sends partial sums of `partial_bytes`
  /// bytes.
  static Handshake of(const Call& call, std::size_t partial_bytes);
  /// Returns the handshake at the beginning of a message.
  static Handshake read(std::span<const std::byte> message);
  void write(std::span<std::byte> message) const;
  [[nodiscard]] std::size_t length() const { return kValuesBegin + bytes_here; }
};

/// The outcome of an agreement of the nodes.
struct Agreed {
  bool all_alike = false;       ///< all ranks of all nodes made the same call, and none refused it
  bool stop_requested = false;  ///< a rank of any node announced the call with a request to stop
  int last_rank = 0;  ///< the rank that announced the call last, as far as this node knows
  /// The duration of the previous call, from the nodes' Announcement::longest_time(). It is equal
  /// on all nodes.
  std::uint32_t last_time = 0;

  // If the data travelled along:
  const std::byte* sum = nullptr;  ///< the reduced wire elements
  /// The operands of the last sum if that is left to the caller, in the order of nodes. Each has
  /// the wire elements of the whole call. Empty if `sum` is set.
  std::vector<const std::byte*> operands{};
  bool is_delivered = false;  ///< this rank's outputs already have the sum
};

/// The pending messages between this rank and the first ranks of other nodes. Their bytes lie in
/// `buffers`, which are leaked after a failure.
class NodeMail {
 public:
  NodeMail(const Topology& topology, Waiter& waiter, Transport& transport,
           std::shared_ptr<const void> buffers);
  ~NodeMail();
  NodeMail(const NodeMail&) = delete;
  NodeMail& operator=(const NodeMail&) = delete;

  void send(int to_node, int tag, std::span<const std::byte> message);
  void receive(int node, int tag, std::span<std::byte> bytes);
  /// Send or receive a handshake with its data, in as many messages as it needs. `room` is large
  /// enough for the longest handshake.
  void send_handshake(int to_node, std::span<const std::byte> whole);
  void receive_handshake(int from_node, std::span<std::byte> room);

  /// Waits for all messages, or for those from one node.
  void wait(int from_node = -1);
  /// Waits for all messages. Returns true if another node was later than this one; last_node() is
  /// then the last of them. What a node sends in a later round includes what it received in earlier
  /// rounds.
  [[nodiscard]] bool wait_for_handshakes();
  [[nodiscard]] int last_node() const { return last_node_; }

 private:
  struct UnderWay {
    int node;  ///< the other node
    Transport::Request request;
    /// Room for the whole handshake if this is its first message.
    std::span<std::byte> whole{};
  };
  void receive_rest(int from_node, std::span<std::byte> whole);

  const Topology& topology_;
  Waiter& waiter_;
  Transport& transport_;
  std::shared_ptr<const void> buffers_;
  std::vector<UnderWay> sends_;       ///< not yet complete
  std::vector<UnderWay> receives_;    ///< not yet complete
  std::vector<UnderWay> first_ones_;  ///< first messages of handshakes that have just been received
  int last_node_ = -1;                ///< the node whose message was missing last
};

}  // namespace tutti::collectives
