// SPDX-License-Identifier: Apache-2.0
// What a simulated cluster is made of, in numbers.
#pragma once

#include <cstddef>

namespace tutti::simulated {

/// LogGP (Alexandrov, Ionescu, Schauser, Scheiman: "LogGP: incorporating long messages into the
/// LogP model", SPAA 1995), with the ports of hosts as what messages share, and with what ranks of
/// a node cost each other. Times are in seconds, rates in bytes per second.
struct Network {
  double latency = 20e-6;           ///< L: from the sender's port to the receiver's
  double overhead = 2e-6;           ///< o: of the sender's core, for a message
  double receive_overhead = 2e-6;   ///< o: of the receiver's core
  double poll = 0;                  ///< of a core, for a look at a message that has not come
  double gap = 0;                   ///< g: of a port, for each message
  double port_rate = 1.25e9;        ///< 1 / G: of each host, in each direction
  bool incoming_limited = true;     ///< false if only what a host sends passes at `port_rate`
  double burst_bytes = 0;           ///< of a port that has rested: they pass at once
  double header_bytes = 0;          ///< of each message, on the wire
  std::size_t eager_bytes = 65536;  ///< a longer message waits for its receiver: two latencies more
  double call = 300e-9;             ///< of a core, for a call, before anything moves
  double signal = 100e-9;           ///< until a rank of the node sees what another has written
  double core_rate = 10e9;          ///< of one core, over what it reads and writes in its caches
  double memory_rate = 10e9;        ///< and in memory
  double cache_bytes = 32 << 20;    ///< of a machine
  double node_rate = 100e9;         ///< of all cores of a node together
  std::size_t cores = 0;            ///< that all nodes share, one each, in turn; 0: own ones
  double turn = 0;                  ///< of a shared core, for a rank that looks and gives it on
};

}  // namespace tutti::simulated
