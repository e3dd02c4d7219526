// SPDX-License-Identifier: Apache-2.0
// Transport, the second interface to other ranks: messages between ranks of different nodes.
//
// In a job this is MPI point-to-point (runtime/mpi/transport.cpp); in tests it is a mailbox between
// threads, which can also delay, drop and fail (runtime/local).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// A message that belongs to no call: a node has failed; a rank, or the last one of a node, has
/// left; or the deadline of the sender's wait has passed, and it asks whether the receiver waits,
/// too, or gives the answer: it does, or it waits in a call of another group.
struct Notice {
  enum class Kind : std::uint32_t { failed, left, node_left, overdue, waits_too, elsewhere };
  Kind kind = Kind::failed;
  std::int32_t rank = 0;   ///< the sender
  std::uint32_t code = 0;  ///< an ErrorCode
  /// left: ControlBlock::left; node_left: left_of_node(); overdue, waits_too: the call that the
  /// sender waits in; elsewhere: the call that was asked in.
  std::uint64_t sequence = 0;
  char text[kTextBytes] = {};

  /// Sets the text, which is cut off if it is too long.
  void say(std::string_view said) { text[said.copy(text, sizeof text - 1)] = '\0'; }
  /// Returns the number of bytes to send, which depends on the length of the text.
  [[nodiscard]] std::size_t size() const { return offsetof(Notice, text) + std::strlen(text) + 1; }
};

/// Starts and completes messages. Messages from one rank to another with the same tag arrive in the
/// order in which they were sent. Errors: communication, with the call and its cause.
class Transport {
 public:
  using Request = int;
  static constexpr Request kDone = -1;

  virtual ~Transport() = default;

  /// Returns a transport between some of these ranks, which are numbered in the order given. Its
  /// messages are separate from those of groups with another number; 0 is the whole job's.
  /// `num_nodes` is the number of nodes of the members. Local: messages may be sent once all
  /// members have their transport. Errors: invalid_argument if no number is left.
  [[nodiscard]] virtual std::unique_ptr<Transport> for_group(const std::vector<int>& members,
                                                             int number, int num_nodes) const = 0;

  /// Starts to send. The bytes must not change until done() has returned true.
  virtual Request send(int to_rank, int tag, std::span<const std::byte> bytes) = 0;

  /// Starts to receive. The message may be shorter than `bytes`, never longer.
  virtual Request receive(int from_rank, int tag, std::span<std::byte> bytes) = 0;

  /// Enables allreduce() between the ranks of a lane, see Topology::lane(). Collective between
  /// these ranks, and without a deadline.
  virtual void make_lane(const std::vector<int>& ranks) { static_cast<void>(ranks); }

  /// Starts an allreduce in place between the ranks of the lane, which start theirs in the same
  /// order. Requires make_lane().
  virtual Request allreduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op);

  /// Makes progress, and returns true once the request is complete; it is then no longer valid.
  virtual bool done(Request request) = 0;

  /// Lets the underlying library move data, its own and the application's.
  virtual void progress() = 0;
  /// False on a thread, of a group on one node, that leaves progress() to another thread, which may
  /// be inside the underlying library at the same time.
  [[nodiscard]] virtual bool may_progress() const { return true; }

  /// Sends a notice without waiting. Errors are ignored, because a call may already have failed.
  virtual void notify(int to_rank, const Notice& notice) noexcept = 0;
  virtual std::optional<Notice> poll_notice() = 0;
};

}  // namespace tutti::collectives
