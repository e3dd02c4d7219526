// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/wait/wait.hpp"

namespace tutti {

/// Whether signals have asked this process to stop. One per process, because a signal handler has
/// no arguments; PreemptionSignals sets it, every group reads it.
inline collectives::StopFlag& stop_flag() noexcept {
  static collectives::StopFlag flag{collectives::Stop::none};
  return flag;
}

}  // namespace tutti
