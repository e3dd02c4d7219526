// SPDX-License-Identifier: Apache-2.0
// The interface of sums over ranks of values on their GPUs.
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

/// Alignment and padding of sums, in bytes; a multiple of every element's size.
inline constexpr std::size_t kGrain = 256;

/// The time that a rank waits until collectives are aborted, since an abort may wait for a GPU that
/// hangs.
inline constexpr auto kForAborts = std::chrono::seconds(1);

class Reducer {
 public:
  virtual ~Reducer() = default;

  /// True if its sums wait for other ranks in the device's stream: then a call that makes one is a
  /// SumTurn.
  [[nodiscard]] virtual bool takes_turns() const { return false; }
  /// Makes every sum over all ranks, in the order of the device's stream. Each is in place, of
  /// memory that is aligned to kGrain and padded to a multiple of it for every local rank, unless
  /// takes_inputs(); the contents of the padding do not matter. Returns when all messages are
  /// through; the GPUs' own work may still be in the stream.
  /// Collective: all ranks have agreed that they make this call with equal counts and dtypes.
  /// Errors, also of the calls below: timeout, communication. Then the group has failed on all
  /// ranks.
  virtual void allreduce(std::span<const Sum> sums) = 0;
  /// True if a sum may be made from elsewhere in the device's memory, and needs neither alignment
  /// nor padding. The same on all ranks.
  [[nodiscard]] virtual bool takes_inputs() const { return false; }
  /// The window of each rank, at the address by which this rank's GPU reaches it: kernels that need
  /// a sum read the windows of all ranks and add in the canonical order, which spares the sum's own
  /// launch and has the bits of allreduce(). Empty if there are no windows, on all ranks alike.
  ///
  /// When all ranks have agreed that they do so, each puts the work that writes its own window into
  /// the stream, calls begin_reading(), puts the work that reads all of them behind it, and calls
  /// finish().
  [[nodiscard]] virtual std::span<std::byte* const> windows() const { return {}; }
  /// Bytes of each window. The same on all ranks.
  [[nodiscard]] virtual std::size_t window_bytes() const { return 0; }
  /// Makes the stream wait until all ranks have written their windows. Collective.
  virtual void begin_reading() {}
  /// Called when the launches that read the sums are in the stream. Returns when the GPUs need
  /// nothing more of this host, which may be before they are through: then the next call throws an
  /// error that comes later.
  virtual void finish() = 0;
  /// Returns when all sums have been made, for a program that looks at them.
  virtual void await() = 0;
  /// Throws the error of sums that no call has waited for. Waits for no sum.
  virtual void check() = 0;

  /// The way of its sums, for logs: "by way of the host".
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// The patience of the calls of a NodeLibrary that a group makes: its deadline, and its ear for
/// failures.
Patience patience_of(Group& group, const char* what);

/// The ranks in the job of a group's ranks, in the group's order.
std::vector<int> job_ranks(const collectives::Topology& topology, std::span<const int> ranks);

/// Ends the work of these collectives in streams, by a thread of its own, and waits for that a
/// second at most: an abort may wait for a device that hangs. Local; does nothing for null.
void abort_beside(const std::shared_ptr<NodeCollectives>& node) noexcept;

/// Names the ranks on this node whose processes have ended, with their parts of a sum; empty if
/// there are none.
std::string ended_ranks(const Group& group);

/// NCCL's words for an error of its own, or nothing. NCCL sees that a connection has closed, but
/// not whose: a rank of the node whose process has ended is named instead. A process that is killed
/// closes its connections just before its end, so this waits for that end, 0.1 s at most.
std::optional<std::string> failure_of(const Group& group, NodeCollectives& node);

/// Calls body(), a step of a sum that all ranks make. An error on one rank concerns all, since the
/// others wait for its next step: the failure is raised first, for ranks that wait in the host's
/// memory, and then abort() ends the work in streams.
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
