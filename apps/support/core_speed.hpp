// SPDX-License-Identifier: Apache-2.0
// The speed of this host's cores: the cost of a call and of a signal, and the rates of sums.
#pragma once

namespace apps {

/// Seconds, and bytes per second, in the meanings of runtime/simulated/network.hpp.
struct CoreSpeed {
  double call = 0;         ///< cost of a call that moves nothing
  double signal = 0;       ///< time until another thread sees a value that one has written
  double core_rate = 0;    ///< rate of reading and writing in caches, of one thread
  double memory_rate = 0;  ///< rate in memory, of one thread
  double node_rate = 0;    ///< rate in memory, of a thread on each core
};

/// Measures in this process, while no other one computes.
CoreSpeed measure_cores();

}  // namespace apps
