// SPDX-License-Identifier: Apache-2.0
// The third seam: time. In a job it is the machine's, and nobody asks here; in a simulation it
// passes only where a rank waits, sends, or works on data (runtime/simulated).
#pragma once

#include <chrono>
#include <cstddef>

namespace tutti::collectives {

/// One simulated rank's time.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Pace() = default;
  [[nodiscard]] virtual Clock::time_point now() const = 0;
  /// Returns when another rank of the node has called signalled(), when a message has come or gone,
  /// or when nothing happens any more; at once if that was the case since the last time.
  virtual void wait() = 0;
  /// This rank has changed memory that ranks of its node may wait for.
  virtual void signalled() = 0;
  /// Lets the time pass that a core needs to read and write so many bytes. False if the simulation
  /// is of times alone: then the caller leaves the work undone.
  virtual bool work(std::size_t bytes) = 0;
};

}  // namespace tutti::collectives
