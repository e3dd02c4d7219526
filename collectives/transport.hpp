// SPDX-License-Identifier: Apache-2.0
// The second interface to other ranks: messages between ranks of different nodes.
//
// In a job this is MPI point-to-point (runtime/mpi/transport.cpp); in tests it is a mailbox between
// threads, which can also delay, drop and fail (runtime/local).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include "collectives/node_memory.hpp"

namespace tutti::collectives {

/// A message outside of any call: its sender failed, or left.
struct Notice {
  enum class Kind : std::uint32_t { failed, left };
  Kind kind = Kind::failed;
  std::int32_t rank = 0;       ///< the sender's rank
  std::uint32_t code = 0;      ///< an ErrorCode
  std::uint64_t sequence = 0;  ///< left: like ControlBlock::left
  char text[kTextBytes] = {};
};

/// Starts and completes messages. Messages from one rank to another with one tag arrive in the
/// order in which they were sent. Errors: communication, with the call and its cause.
class Transport {
 public:
  using Request = int;
  static constexpr Request kDone = -1;

  virtual ~Transport() = default;

  /// Starts; the bytes stay untouched until done() has returned true.
  virtual Request send(int to_rank, int tag, std::span<const std::byte> bytes) = 0;

  /// Starts; the message may be shorter than `bytes`, never longer.
  virtual Request receive(int from_rank, int tag, std::span<std::byte> bytes) = 0;

  /// Starts an allreduce in place with the same local rank of the other nodes; all start theirs in
  /// the same order. Only if the group was made for Exchange::mpi.
  virtual Request allreduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op);

  /// True once complete; the request is then no longer valid. Makes progress.
  virtual bool done(Request request) = 0;

  /// Lets the library below move data, its own and the application's.
  virtual void progress() = 0;

  /// Sends without waiting; for failures and farewells, so errors are swallowed.
  virtual void notify(int to_rank, const Notice& notice) noexcept = 0;
  virtual std::optional<Notice> poll_notice() = 0;
};

}  // namespace tutti::collectives
