// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of what is on their GPUs.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/error.hpp"

#include "runtime/gpu/gpus.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// Bytes; a multiple of every element's size.
inline constexpr std::size_t kGrain = 256;

/// How long a rank waits until collectives are aborted, which itself may wait for a GPU that hangs.
inline constexpr auto kForAborts = std::chrono::seconds(1);

class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Whether its sums wait for other ranks in the device's stream: then a call that makes one is a
  /// SumTurn.
  [[nodiscard]] virtual bool takes_turns() const { return false; }
  /// Makes every sum over all ranks, in the order of the device's stream. Each is in place, of
  /// memory that is aligned to kGrain and padded to a multiple of it for every local rank, unless
  /// takes_inputs(); what the padding holds does not matter. Returns when all messages are through;
  /// the GPUs' own work may still be in the stream.
  /// Collective: all ranks have agreed that they make this call with equal counts and dtypes.
  /// Errors: timeout, communication: the group has failed on all ranks. So it is of the calls
  /// below.
  virtual void allreduce(std::span<const Sum> sums) = 0;
  /// Whether a sum may be made from elsewhere in the device's memory, and needs neither alignment
  /// nor padding. The same on all ranks.
  [[nodiscard]] virtual bool takes_inputs() const { return false; }
  /// The window of each rank, at the address by which this rank's GPU reaches it: kernels that need
  /// a sum read the windows of all ranks and add in the canonical order, which spares the sum's own
  /// launch and has the bits of allreduce(). Empty if there are none, on all ranks alike.
  ///
  /// When all ranks have agreed that they do so, each puts what writes its own window into the
  /// stream, calls begin_reading(), puts what reads all of them behind it, and calls finish().
  [[nodiscard]] virtual std::span<std::byte* const> windows() const { return {}; }
  /// Bytes of each. The same on all ranks.
  [[nodiscard]] virtual std::size_t window_bytes() const { return 0; }
  /// Collective.
  virtual void begin_reading() {}
  /// Called when the launches that read the sums are in the stream. Returns when the GPUs need
  /// nothing more of this host, which may be before they are through: the next call throws an error
  /// that comes later.
  virtual void finish() = 0;
  /// Returns when all sums have been made: for a program that looks at them.
  virtual void await() = 0;
  /// Throws what has gone wrong with sums that nobody has waited for. Waits for no sum.
  virtual void check() = 0;

  /// "by way of the host": for logs.
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// For the calls of a NodeLibrary that a group makes: its deadline, and its ear for failures.
Patience patience_of(Group& group, const char* what);

/// The job's ranks that a group's ranks are, in the group's order.
std::vector<int> job_ranks(const collectives::Topology& topology, std::span<const int> ranks);

/// Ends what these collectives have in streams, by a thread of its own, and waits for that a second
/// at the most: an abort may wait for a device that hangs. Local; nothing for null.
void abort_beside(const std::shared_ptr<NodeCollectives>& node) noexcept;

/// Says which ranks' processes on this node have ended, who take their parts of a sum along; empty
/// if none has.
std::string ended_ranks(const Group& group);

/// NCCL's words for an error of its own, or nothing. NCCL sees that a connection has closed, and
/// not whose: a rank of the node whose process has ended is named instead. A process that is killed
/// closes its connections just before its end, so this waits for that, 0.1 s at most.
std::optional<std::string> failure_of(const Group& group, NodeCollectives& node);

/// Calls body(), a step of a sum that all ranks make. What goes wrong on one rank is everybody's,
/// since the others wait for its next step: the failure is raised first, for ranks that wait in the
/// host's memory, and then abort() ends what is in streams.
template <class Body, class Abort>
void carry_out(Group& group, Body body, Abort abort) {
  collectives::catching(body, [&](const collectives::LocalError& error) {
    try {
      if (error.scope != ErrorScope::caller) throw;
      group.engine().fail(error);
    } catch (...) {
      abort();
      throw;
    }
  });
}

}  // namespace tutti::gpus
