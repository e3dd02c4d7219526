// SPDX-License-Identifier: Apache-2.0
// The second interface to other ranks: messages between ranks of different nodes.
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
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// A message outside of any call: a node failed, or a rank or the last one of a node left; or the
/// sender's time in a call is up, and it asks whether the receiver waits, too, or answers so.
struct Notice {
  enum class Kind : std::uint32_t { failed, left, node_left, overdue, waits_too };
  Kind kind = Kind::failed;
  std::int32_t rank = 0;       ///< the sender's rank
  std::uint32_t code = 0;      ///< an ErrorCode
  std::uint64_t sequence = 0;  ///< left: like ControlBlock::left; node_left: of all ranks there;
                               ///< overdue, waits_too: of the call that the sender waits in
  char text[kTextBytes] = {};

  /// Bytes to send: no more than the text needs.
  [[nodiscard]] std::size_t size() const { return offsetof(Notice, text) + std::strlen(text) + 1; }
};

/// Starts and completes messages. Messages from one rank to another with one tag arrive in the
/// order in which they were sent. Errors: communication, with the call and its cause.
class Transport {
 public:
  using Request = int;
  static constexpr Request kDone = -1;

  virtual ~Transport() = default;

  /// Messages between some of these ranks, which are numbered in the order given. They are apart
  /// from those of every group with another number; 0 is the whole job's. `num_nodes`: the
  /// members'. Local: messages may be sent once all members have one. Errors: invalid_argument if
  /// numbers have run out.
  [[nodiscard]] virtual std::unique_ptr<Transport> for_group(const std::vector<int>& members,
                                                             int number, int num_nodes) const = 0;

  /// Starts; the bytes stay untouched until done() has returned true.
  virtual Request send(int to_rank, int tag, std::span<const std::byte> bytes) = 0;

  /// Starts; the message may be shorter than `bytes`, never longer.
  virtual Request receive(int from_rank, int tag, std::span<std::byte> bytes) = 0;

  /// Makes allreduce() possible between the ranks of a lane: see Topology::lane(). Collective
  /// between these, and without a deadline.
  virtual void make_lane(const std::vector<int>& ranks) { static_cast<void>(ranks); }

  /// Starts an allreduce in place with the same local rank of the other nodes; all start theirs in
  /// the same order. Only after make_lane().
  virtual Request allreduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op);

  /// True once complete; the request is then no longer valid. Makes progress.
  virtual bool done(Request request) = 0;

  /// Lets the library below move data, its own and the application's.
  virtual void progress() = 0;
  /// False on a thread of a group on one node that leaves progress() to another thread, which may
  /// be in the library below at the same time.
  [[nodiscard]] virtual bool may_progress() const { return true; }

  /// Sends without waiting, when a call may have failed: errors are swallowed.
  virtual void notify(int to_rank, const Notice& notice) noexcept = 0;
  virtual std::optional<Notice> poll_notice() = 0;
};

}  // namespace tutti::collectives
