// SPDX-License-Identifier: Apache-2.0
// A process that has been asked to stop.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::collectives {

/// How urgently. Only grows.
enum class Stop : std::uint32_t {
  none,
  requested,    ///< there is time to come to a good end
  terminating,  ///< the process will be killed soon, and peers may have been
};

/// Set by a signal handler or by the program, read at every announcement.
using StopFlag = std::atomic<Stop>;
static_assert(StopFlag::is_always_lock_free);

}  // namespace tutti::collectives
