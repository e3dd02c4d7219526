// SPDX-License-Identifier: Apache-2.0
// Pace, the third interface: time. In a job there is no Pace, and time is the machine's. In a
// simulation time only passes while a rank waits, sends, or works on data (runtime/simulated).
#pragma once

#include <chrono>
#include <cstddef>

namespace tutti::collectives {

/// The clock of one simulated rank.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Pace() = default;
  [[nodiscard]] virtual Clock::time_point now() const = 0;
  /// Returns when another rank of the node has called signalled(), when a message has arrived or
  /// left, or when nothing can happen any more. Returns at once if this has happened since the last
  /// call.
  virtual void wait() = 0;
  /// Reports that this rank has changed memory that ranks of its node may wait for.
  virtual void signalled() = 0;
  /// Lets the time pass that a core needs to read and write `bytes` bytes. Returns false if only
  /// times are simulated; the caller then skips the work.
  virtual bool work(std::size_t bytes) = 0;
};

}  // namespace tutti::collectives
