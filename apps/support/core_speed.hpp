// SPDX-License-Identifier: Apache-2.0
// What a call, a signal and the memory cost the cores of this host.
#pragma once

namespace apps {

/// Seconds, and bytes per second, as runtime/simulated/network.hpp means them.
struct CoreSpeed {
  double call = 0;         ///< of a call that moves nothing
  double signal = 0;       ///< until another thread sees what one has written
  double core_rate = 0;    ///< over what is read and written in caches, of one thread
  double memory_rate = 0;  ///< and in memory
  double node_rate = 0;    ///< of a thread on each core
};

/// Measured in this process, while no other one computes.
CoreSpeed measure_cores();

}  // namespace apps
