// SPDX-License-Identifier: Apache-2.0
// Wires: the network of a simulated cluster, and counters of its traffic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/wait/transport.hpp"
#include "runtime/simulated/simulation.hpp"

namespace tutti::simulated {

/// Traffic of ranks and hosts since the last reset.
struct Traffic {
  std::uint64_t messages = 0;            ///< between nodes
  std::uint64_t bytes = 0;               ///< without headers
  std::uint64_t most_of_node = 0;        ///< of the node that sent most messages
  std::uint64_t most_bytes_of_node = 0;  ///< of the node that sent most bytes
  std::uint64_t most_bytes_of_link = 0;  ///< with headers, in one direction of one node's link
  std::uint64_t notices = 0;             ///< notices outside of calls
  std::uint64_t most_notices_of_node = 0;
};

/// All messages of a simulation. A message first occupies the sender's core, then the port of its
/// host in the order of sending, the wire, the port of the receiver's host in the order of arrival,
/// and the receiver's core when that polls. A long message is preceded by a question whether it is
/// awaited. Between ranks of a node, a message takes the time for writing and reading it.
class Wires {
 public:
  explicit Wires(Simulation& simulation);

  /// Returns the transport of one rank. It must not outlive this object.
  std::unique_ptr<collectives::Transport> transport_of(int rank);
  /// Disconnects these ranks, as if their hosts had lost power.
  void cut(const std::vector<int>& ranks);
  [[nodiscard]] Traffic traffic() const;
  void reset_traffic();

 private:
  friend class SimulatedTransport;
  using Request = collectives::Transport::Request;

  struct Message {
    int from = 0;
    int to = 0;
    int tag = 0;
    std::size_t size = 0;
    std::vector<std::byte> bytes;  ///< empty if contents do not matter
    Request sent = -1;      ///< the sender's request, which ends when the message has left the host
    Request received = -1;  ///< the receiver's request, once it is known
    bool asked = false;     ///< a long message whose receiver has been asked
    std::int64_t hop = -1;  ///< the hop that brought it to its current place
  };
  using MessagePointer = std::shared_ptr<Message>;
  struct Source {
    int from;
    int tag;
    friend auto operator<=>(const Source&, const Source&) = default;
  };
  struct Pending {
    std::span<std::byte> bytes;  ///< the receive buffer
    bool costs = false;          ///< occupies the receiver's core when that polls
    bool done = false;
    int group = 0;           ///< group of a receive
    bool forgotten = false;  ///< the buffer no longer exists
  };
  /// The requests of one rank, and the messages that have or have not a matching receive.
  struct End {
    std::vector<Pending> requests;
    std::vector<Request> free;
    std::map<Source, std::deque<Request>> awaited;
    std::map<Source, std::deque<MessagePointer>> unexpected;
    std::map<int, std::deque<collectives::Notice>> notices;  ///< by group
    Request request(std::span<std::byte> bytes);
  };

  Request send(int from, int to, int tag, std::span<const std::byte> bytes);
  Request receive(int rank, int from, int tag, std::span<std::byte> bytes);
  bool done(int rank, Request request);
  void notify(int from, int to, int group, const collectives::Notice& notice);
  std::optional<collectives::Notice> poll_notice(int rank, int group);
  void forget(int rank, int group);

  void move(const MessagePointer& message);
  void enter(const MessagePointer& message, Time last);
  void come(const MessagePointer& message);
  void match(const MessagePointer& message);
  void hand_over(const MessagePointer& message);
  void complete(int rank, Request request, std::int64_t hop = -1);
  [[nodiscard]] bool same_node(int a, int b) const {
    return simulation_.node_of(a) == simulation_.node_of(b);
  }
  /// One direction of a host's link.
  struct Port {
    Time free_at = 0;
    double burst = 0;  ///< bytes that pass at once at that time
  };
  struct Passage {
    Time begin;
    Time end;
  };
  /// Passes bytes through the port, after earlier ones. The bytes arrive from now on until `last`.
  Passage pass(Port& port, std::size_t bytes, Time last);
  [[nodiscard]] bool needs_contents(int tag) const;

  Simulation& simulation_;
  const Time latency_;
  const Time overhead_;
  const Time receive_overhead_;
  const Time gap_;
  std::vector<End> ends_;
  std::vector<Port> outgoing_;  ///< by node
  std::vector<Port> incoming_;
  std::vector<bool> cut_;  ///< by rank
  std::vector<std::uint64_t> messages_of_node_;
  std::vector<std::uint64_t> messages_to_node_;
  std::vector<std::uint64_t> bytes_of_node_;
  std::vector<std::uint64_t> bytes_to_node_;
  std::vector<std::uint64_t> notices_of_node_;
};

}  // namespace tutti::simulated
