// SPDX-License-Identifier: Apache-2.0
// Network: the parameters of a simulated cluster.
#pragma once

#include <cstddef>

namespace tutti::simulated {

/// LogGP (Alexandrov, Ionescu, Schauser, Scheiman: "LogGP: incorporating long messages into the
/// LogP model", SPAA 1995), extended by ports of hosts, which messages share, and by the costs
/// between ranks of a node. Times are in seconds, rates in bytes per second.
struct Network {
  double latency = 20e-6;          ///< L: from the sender's port to the receiver's port
  double overhead = 2e-6;          ///< o: of the sender's core, per message
  double receive_overhead = 2e-6;  ///< o: of the receiver's core, per message
  double poll = 0;                 ///< of a core, per poll for a message that has not arrived
  double gap = 0;                  ///< g: of a port, per message
  double port_rate = 1.25e9;       ///< 1 / G: of each host, in each direction
  bool incoming_limited = true;    ///< false if only outgoing messages are limited by `port_rate`
  double burst_bytes = 0;          ///< bytes that pass a rested port at once
  double header_bytes = 0;         ///< of each message, on the wire
  /// Longer messages wait for the receiver, for two more latencies.
  std::size_t eager_bytes = 65536;
  double call = 300e-9;           ///< of a core, per call, before anything moves
  double signal = 100e-9;         ///< until a rank of the node sees what another one has written
  double core_rate = 10e9;        ///< of one core, over data that it reads and writes in its caches
  double memory_rate = 10e9;      ///< the same in memory
  double cache_bytes = 32 << 20;  ///< of the caches of a machine
  double node_rate = 100e9;       ///< of all cores of a node together
  /// Cores that all nodes share, in turn, one per node; 0 if nodes have their own.
  std::size_t cores = 0;
  double turn = 0;  ///< of a shared core, per rank that polls and passes it on
};

}  // namespace tutti::simulated
