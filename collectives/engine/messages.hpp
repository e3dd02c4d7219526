// SPDX-License-Identifier: Apache-2.0
// Messages: messages between two ranks, without the other ranks.
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
// A message is received before its sender's next call begins, so that both ranks know its result,
// and so that two ranks that wait for each other are noticed for any size of message. The send of a
// small message within a node returns earlier: it leaves a copy, and the sender's next call waits
// instead. Other sends return when the receiver has the message. Messages of a pair of ranks are
// ordered, and have no tags.
//
// Cost, for n bytes: in the node one line in each direction and one copy by the receiver, from the
// sender's arena or through the kernel. Up to 32 bytes travel in the line, and the receiver's next
// message to the sender acknowledges it. Messages of up to 4 KiB, those of less than 16 KiB in
// ordinary memory, and all of ordinary memory where the kernel does not let ranks read each other,
// go through two slots of the sender: a copy in and a copy out, at the same time. Between nodes
// there are two messages, and one more for each piece beyond the first 8 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/dtype.hpp"

#include "collectives/engine/meetings.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/transport.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// The elements that one rank sends, or the space for those that it receives.
struct Message {
  std::byte* bytes = nullptr;  ///< only read by the sender
  std::size_t count = 0;
  DType dtype = DType::float32;
  [[nodiscard]] std::size_t size() const { return count * size_of(dtype); }
};

/// The messages of one rank to and from all others.
class Messages {
 public:
  Messages(const NodeMemory& memory, const Topology& topology, Waiter& waiter, Workers& workers,
           const Tuning& tuning, Transport* transport, AllocateShared allocate_shared);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Does everything that may fail on this rank alone, before the other rank knows of the message.
  /// Errors: out_of_memory.
  void prepare_to_send(int to_rank);

  /// Each of the two ranks calls one of these. When a send returns, its message has been received,
  /// or was left behind. Errors: mismatch, on both ranks, if count or dtype differ, and nothing is
  /// moved; communication, timeout (failed).
  void send(int to_rank, const Message& message);
  void receive(int from_rank, const Message& message);

  /// How ranks of the node find who exchanges messages with them next. Call prepare_to_send()
  /// first.
  [[nodiscard]] Meetings& meetings() { return meetings_; }

  /// True if a message was sent that may not have been received yet. complete() must be called
  /// before the next send, and before anything else that this rank waits in.
  [[nodiscard]] bool has_left() const { return left_.number != 0; }
  [[nodiscard]] int left_to_rank() const { return left_.to_rank; }
  [[nodiscard]] std::string describe_left() const;
  /// Waits until it has been received. Errors: as send().
  void complete();
  /// Waits a moment for a message from this rank, which may acknowledge the message left behind. If
  /// it does not, complete() is still needed.
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
    std::uint64_t number = 0;  ///< 0 if there is none
  };

  static std::string to_text(const Facts& facts);
  [[nodiscard]] Channel* channel(int owner) const;
  [[nodiscard]] MeetingWords* meeting_words(int owner, int to) const;
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
  Channel* channels_ = nullptr;      ///< to each local rank; null before the first message
  std::byte* slots_ = nullptr;       ///< this rank's two slots
  std::vector<std::uint64_t> sent_;  ///< number of messages so far, by rank
  std::vector<std::uint64_t> received_;
  std::vector<std::uint64_t> taken_;  ///< number of the last message that was not refused
  Left left_;
  std::shared_ptr<Buffers> buffers_;
  Meetings meetings_;
};

}  // namespace tutti::collectives
