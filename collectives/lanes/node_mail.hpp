// SPDX-License-Identifier: Apache-2.0
// Messages by which the first ranks of the nodes agree on a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/node/call.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// A node's statement on a call, in front of its data. If a message has several handshakes, the
/// sender's own says whom the sender saw coming last.
struct Handshake {
  /// Data begins on a line of its own, as tensors do.
  static constexpr std::size_t kValuesBegin = 128;

  std::uint64_t sequence;
  Signature signature;
  std::uint32_t agrees;          ///< 1 if the ranks of the node agree among themselves
  std::uint32_t stop_requested;  ///< 1 if one of them was asked to stop
  std::uint64_t partial_bytes;   ///< of one partial sum
  std::int32_t last_rank;        ///< to announce the call, among those that its sender knows of
  std::uint32_t last_time;       ///< of the call before it, on the nodes that it stands for
  std::uint64_t bytes_here = 0;  ///< of data that follow
  std::uint32_t by_halves = 0;   ///< 1 if messages have halves of the sums

  /// This node's statement on a call of which it sends partial sums of so many bytes.
  static Handshake of(const Call& call, std::size_t partial_bytes);
  /// The one at the beginning of a message.
  static Handshake read(std::span<const std::byte> message);
  void write(std::span<std::byte> message) const;
  [[nodiscard]] std::size_t length() const { return kValuesBegin + bytes_here; }
};

/// The outcome of an agreement of the nodes.
struct Agreed {
  bool all_alike = false;       ///< all ranks of all nodes made the same call, and none refused it
  bool stop_requested = false;  ///< a rank of any node announced the call with a request to stop
  int last_rank = 0;            ///< the one that announced the call last, as far as this node saw
  /// How long the call before this one took, from the nodes' Announcement::longest_time(): equal
  /// on all.
  std::uint32_t last_time = 0;

  // With data.
  const std::byte* sum = nullptr;  ///< the reduced wire elements
  /// Where all but the last sum has been made: what is to be summed, each wire elements of the
  /// whole call, in the order of nodes. Empty if `sum` is there.
  std::vector<const std::byte*> operands{};
  bool is_delivered = false;  ///< this rank's outputs have the sum already
};

/// The messages under way between this rank and the first ranks of other nodes. Their bytes lie in
/// `buffers`, which are left to them after a failure.
class NodeMail {
 public:
  NodeMail(const Topology& topology, Waiter& waiter, Transport& transport,
           std::shared_ptr<const void> buffers);
  ~NodeMail();
  NodeMail(const NodeMail&) = delete;
  NodeMail& operator=(const NodeMail&) = delete;

  void send(int to_node, int tag, std::span<const std::byte> message);
  void receive(int node, int tag, std::span<std::byte> bytes);
  /// A handshake with its data, in as many messages as it takes. `room`: for the longest one.
  void send_handshake(int to_node, std::span<const std::byte> whole);
  void receive_handshake(int from_node, std::span<std::byte> room);

  /// Waits for all messages, or for those that one node sends.
  void wait(int from_node = -1);
  /// wait() for all. True if another node came later than this one, and last_node() is the last of
  /// them. A node that speaks in a later round has put together what it sends from what it has
  /// received in those before.
  [[nodiscard]] bool wait_for_handshakes();
  [[nodiscard]] int last_node() const { return last_node_; }

 private:
  struct UnderWay {
    int node;  ///< the other one
    Transport::Request request;
    /// The place of a whole handshake, if this is its first message, which says what follows.
    std::span<std::byte> whole{};
  };
  void receive_rest(int from_node, std::span<std::byte> whole);

  const Topology& topology_;
  Waiter& waiter_;
  Transport& transport_;
  std::shared_ptr<const void> buffers_;
  std::vector<UnderWay> sends_;       ///< not yet complete
  std::vector<UnderWay> receives_;    ///< not yet complete
  std::vector<UnderWay> first_ones_;  ///< of handshakes, just complete
  int last_node_ = -1;                ///< whose message was missing last
};

}  // namespace tutti::collectives
