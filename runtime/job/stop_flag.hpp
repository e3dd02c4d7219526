// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/wait/wait.hpp"

namespace tutti {

/// The flag with which signals ask this process to stop. There is one per process, because a signal
/// handler has no arguments; PreemptionSignals sets it, and every group reads it.
inline collectives::StopFlag& stop_flag() noexcept {
  static collectives::StopFlag flag{collectives::Stop::none};
  return flag;
}

}  // namespace tutti
