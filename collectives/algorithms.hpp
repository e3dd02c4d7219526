// SPDX-License-Identifier: Apache-2.0
// The algorithms, one file each, and the sizes that choose between them.
#pragma once

#include <cstddef>

#include "collectives/call.hpp"
#include "collectives/lane.hpp"

namespace tutti::collectives {

/// Sizes in bytes, read once from the settings and the machine.
struct Tuning {
  std::size_t chunk_bytes;           ///< scratch slot; what a node reduces at a time, out of place
  std::size_t streaming_bytes;       ///< a node's data above this goes past the caches
  std::size_t chunks_in_flight = 4;  ///< between nodes; of 256 KiB each, they fill a 1 Gb/s link
};

/// Every algorithm completes an allreduce or a broadcast that all ranks have agreed on. On return
/// the outputs are written, and the inputs are no longer read by anybody.
/// Errors  communication, timeout: the node is failed.
void reduce_inline(Call& call);
void reduce_in_node(Call& call, const Tuning& tuning);
void reduce_in_lanes(Call& call, const Tuning& tuning, LaneExchange* lane);

}  // namespace tutti::collectives
