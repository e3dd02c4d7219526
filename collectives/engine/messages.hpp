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
// A message is taken before its sender's next call begins, so that both know how it ended, and so
// that no size of a message hides two ranks that wait for each other. The send of a small one in
// the node returns before: it leaves a copy, and the sender's next call waits in its place. Others
// return when the receiver has taken the message. Messages of a pair have an order and no tags.
//
// Cost, of n bytes: in the node one line each way and one copy, by the receiver, from the sender's
// arena or through the kernel. Up to 32 bytes travel in the line, and what comes back in the next
// message says in its own that the line was taken. Up to 4 KiB, small messages of ordinary memory,
// and all where the kernel does not let ranks read each other, go through two slots of the
// sender's: a copy in and a copy out, at the same time. Between nodes two messages, and a message
// for each piece of what is longer than 8 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/dtype.hpp"

#include "collectives/node/call.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/transport.hpp"
#include "collectives/wait/wait.hpp"

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
           const Tuning& tuning, Transport* transport, AllocateShared allocate_shared);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// What may fail on this rank alone, before the other one knows. Errors: out_of_memory.
  void prepare_to_send(int to_rank);

  /// Both ranks call theirs. When a send returns, its message has been taken, or was left() behind.
  /// Errors: mismatch, on both ranks, if count or dtype differ, and nothing is moved;
  /// communication, timeout (failed).
  void send(int to_rank, const Message& message);
  void receive(int from_rank, const Message& message);

  /// A message that was sent and may not be taken yet. complete() comes before the next send, and
  /// before anything else that this rank waits in.
  [[nodiscard]] bool has_left() const { return left_.number != 0; }
  [[nodiscard]] int left_to_rank() const { return left_.to_rank; }
  [[nodiscard]] std::string describe_left() const;
  /// Returns when it has been taken. Errors: as send().
  void complete();
  /// Before a message from this rank is received: it may come soon, and say that what was left is
  /// taken. If not, that is still to be completed.
  void await_answer(int from_rank);

 private:
  enum class Way : std::uint32_t;
  struct Channel;
  struct Facts;
  struct Header;
  struct Verdict;
  struct Buffers;
  struct Left {
    int to = 0;  ///< local rank
    int to_rank = 0;
    std::uint64_t number = 0;  ///< 0: there is none
  };

  static std::string to_text(const Facts& facts);
  [[nodiscard]] Channel* channel(int owner) const;
  void send_in_node(int to, const Message& message);
  void receive_in_node(int from, const Message& message);
  [[nodiscard]] Way way_of(const Message& message) const;
  void take(Channel& channel, int from, const Message& message);
  void fill_slots(Channel& channel, int to, const Message& message);
  void empty_slots(Channel& channel, int from, const Message& message);
  void read_memory(const Channel& channel, int from, const Message& message);
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
  AllocateShared allocate_shared_;
  Channel* channels_ = nullptr;      ///< this rank's, one per local rank; null before a message
  std::byte* slots_ = nullptr;       ///< this rank's two
  std::vector<std::uint64_t> sent_;  ///< messages so far, by rank
  std::vector<std::uint64_t> received_;
  std::vector<std::uint64_t> taken_;  ///< number of the last message that was not refused
  Left left_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace tutti::collectives
