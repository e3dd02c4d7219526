// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, in which no other takes part.
//
//   in the node                                     between nodes
//
//   sender                     receiver             sender                        receiver
//     | number, count, dtype, place |                 | number, count, dtype, 8 KiB  |
//     |---------------------------->|                 |----------------------------->|
//     |      reads from arena or    |                 |          it fits, or not     |
//     |      process, or slots      |                 |<-----------------------------|
//     |<----------------------------|                 | pieces, several on their way |
//     |   it fits and is taken      |                 |----------------------------->|
//
// A send returns when the receiver has taken the message, so that both know how it ended, and so
// that no size of a message hides two ranks that wait for each other. Messages of a pair have an
// order and no tags.
//
// Cost, of n bytes: in the node one line each way and one copy, by the receiver, from the sender's
// arena or through the kernel. Up to 32 bytes travel in the line. Small messages of ordinary
// memory, and all where the kernel does not let ranks read each other, go through two slots of the
// sender's: a copy in and a copy out, at the same time. Between nodes two messages, and a message
// for each piece of what is longer than 8 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/dtype.hpp"

#include "collectives/call.hpp"
#include "collectives/node_memory.hpp"
#include "collectives/transport.hpp"
#include "collectives/wait.hpp"

namespace tutti::collectives {

/// Elements that one rank sends, or has room for.
struct Message {
  std::byte* bytes = nullptr;  ///< a sender's are only read
  std::size_t count = 0;
  DType dtype = DType::float32;
  [[nodiscard]] std::size_t size() const { return count * size_of(dtype); }
};

/// One rank's messages to and from all others.
class Messages {
 public:
  Messages(const NodeMemory& memory, const Topology& topology, Waiter& waiter, Workers& workers,
           const Tuning& tuning, Transport* transport, Call::AllocateShared allocate_shared);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// What may fail on this rank alone, before the other one knows. Errors: out_of_memory.
  void prepare_to_send(int to_rank);

  /// Return when the message has been taken. Both ranks call theirs. Errors: mismatch, on both
  /// ranks, if count or dtype differ, and nothing is moved; communication, timeout (failed).
  void send(int to_rank, const Message& message);
  void receive(int from_rank, const Message& message);

 private:
  struct Channel;
  struct Facts;
  struct Header;
  struct Verdict;
  struct Buffers;

  [[nodiscard]] Channel* channel(int owner, int receiver) const;
  void send_in_node(int to, const Message& message);
  void receive_in_node(int from, const Message& message);
  void post(Channel& channel, std::uint64_t number, int to_rank);
  void wait_until_taken(const Channel& channel, std::uint64_t number, int to_rank);
  void take(Channel& channel, int from, const Message& message);
  void fill_slots(Channel& channel, int to, const Message& message);
  void empty_slots(Channel& channel, int from, const Message& message);
  void read_place(const Channel& channel, int from, const Message& message);
  void copy(std::byte* to, const std::byte* from, const Message& message);
  void send_between_nodes(int to_rank, const Message& message);
  void receive_between_nodes(int from_rank, const Message& message);
  void wait_for_messages(int rank);
  [[noreturn]] void throw_mismatch(int from_rank, int to_rank, const Facts& sent,
                                   const Facts& wanted) const;

  const NodeMemory& memory_;
  const Topology& topology_;
  Waiter& waiter_;
  Workers& workers_;
  const Tuning& tuning_;
  Transport* transport_;
  Call::AllocateShared allocate_shared_;
  Channel* channels_ = nullptr;      ///< this rank's, one per local rank; null before a message
  std::byte* slots_ = nullptr;       ///< this rank's two
  std::vector<std::uint64_t> sent_;  ///< messages so far, by rank
  std::vector<std::uint64_t> received_;
  std::unique_ptr<Buffers> buffers_;  ///< of messages between nodes
};

}  // namespace tutti::collectives
