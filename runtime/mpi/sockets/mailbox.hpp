// SPDX-License-Identifier: Apache-2.0
// Messages between the processes of a host, as datagrams of Unix sockets: each rank has one socket,
// to which all others send. The kernel loses none, keeps the order of each sender's, and takes no
// more than the receiver has room for: what is left over is sent when this rank looks again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/mpi/sockets/meeting.hpp"

namespace tutti::mpi::sockets {

constexpr int kAnyPeer = -1;
constexpr int kAnyTagOfPeer = -1;

/// The communicator and tag of a message, by which it is matched besides its sender.
struct Subject {
  std::uint64_t context = 0;  ///< of a communicator
  int tag = 0;
};

enum class Trouble { none, truncated, unreachable };

/// A message to a rank. Its bytes stay where they are until it is done.
struct Sending {
  Subject subject;
  std::span<const std::byte> bytes;
  std::size_t sent = 0;
  bool is_done = false;
  Trouble trouble = Trouble::none;
};

/// A message from a rank, or from any. Without a place for it, it is kept in `taken`.
struct Receiving {
  Subject subject;
  int from = kAnyPeer;
  std::optional<std::span<std::byte>> place;
  std::vector<std::byte> taken;
  bool is_done = false;
  Trouble trouble = Trouble::none;
};

/// One thread at a time.
class Mailbox {
 public:
  explicit Mailbox(const Job& job)
      : job_(job), arriving_(job.peers.size()), leaving_(job.peers.size()) {}

  std::shared_ptr<Sending> send(int to, Subject subject, std::span<const std::byte> bytes);
  /// Into `place`, or into the Receiving itself. Those of one subject are met in their order.
  std::shared_ptr<Receiving> receive(int from, Subject subject,
                                     std::optional<std::span<std::byte>> place);
  /// From now on no message meets it.
  void forget(const std::shared_ptr<Receiving>& receiving);

  /// A message that nobody has asked for yet.
  struct Found {
    int from;
    std::size_t bytes;
  };
  [[nodiscard]] std::optional<Found> find(int from, Subject subject) const;

  /// Takes what has come, and sends what there is room for now.
  void look();

 private:
  struct Head {
    std::uint64_t context;
    std::uint64_t bytes;  ///< of the whole message
    std::int32_t from;
    std::int32_t tag;
  };
  struct Message {
    int from;
    Subject subject;
    std::vector<std::byte> bytes;
  };
  struct Arriving {
    Message message;
    std::size_t missing = 0;
  };
  static constexpr std::size_t kPieceBytes = 32 << 10;

  void send_some(int to);
  bool take_one();
  void take_piece(const Head& head, std::span<const std::byte> bytes);
  void deliver(Message&& message);
  static bool is_for(const Message& message, int from, const Subject& subject);
  static void hand_over(Message&& message, Receiving& receiving);

  const Job& job_;
  std::vector<Arriving> arriving_;                             ///< by sender
  std::vector<std::deque<std::shared_ptr<Sending>>> leaving_;  ///< by receiver
  std::list<std::shared_ptr<Receiving>> asked_;
  std::list<Message> unasked_;
  std::array<std::byte, kPieceBytes> piece_{};
};

}  // namespace tutti::mpi::sockets
