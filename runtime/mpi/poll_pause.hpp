// SPDX-License-Identifier: Apache-2.0
// What a thread does between two looks at what MPI has to do, which wakes nobody.
#pragma once

#include <chrono>
#include <ctime>
#include <sched.h>

#include "collectives/wait/core_share.hpp"

namespace tutti::mpi {

/// Yields for some milliseconds of a wait, then naps; on a core that other programs want, naps at
/// once, because they would have it for a time slice. One per thread.
class PollPause {
 public:
  /// `waited`: since the wait began.
  void pause(std::chrono::duration<double> waited) {
    using Clock = collectives::CoreShare::Clock;
    const auto begin = Clock::now();
    if (waited >= kYield || core_.is_wanted(begin)) {
      nanosleep(&kNap, nullptr);
      return;
    }
    sched_yield();
    const auto end = Clock::now();
    core_.came_back(end - begin, end);
  }

 private:
  static constexpr std::chrono::duration<double> kYield{0.005};
  static constexpr timespec kNap{0, 50'000};

  collectives::CoreShare core_{/*peers_share=*/true};
};

}  // namespace tutti::mpi
