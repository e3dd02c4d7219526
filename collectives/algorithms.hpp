// SPDX-License-Identifier: Apache-2.0
// The algorithms, one file each, and the sizes that choose between them.
#pragma once

#include <cstddef>

#include "collectives/call.hpp"
#include "collectives/lane.hpp"

namespace tutti::collectives {

/// Sizes in bytes, read once from the settings and the machine.
struct Tuning {
  std::size_t chunk_bytes;      ///< scratch slot; what a node reduces at a time, out of place
  std::size_t streaming_bytes;  ///< a node's data above this goes past the caches
  /// Calls of this size write the scratch slots past the caches: a line that is dirty in the cache
  /// of a distant core takes its reader longer than a line in memory, which is also read ahead.
  std::size_t streamed_slot_bytes = std::size_t{16} << 10;
  std::size_t chunks_in_flight = 4;  ///< between nodes; of 256 KiB each, they fill a 1 Gb/s link
};

/// How a call of this size writes its scratch slots.
inline Stores slot_stores(const Call& call, const Tuning& tuning) {
  return call.layout().total() < tuning.streamed_slot_bytes ? Stores::cached : Stores::streaming;
}

/// Every algorithm completes an allreduce or a broadcast that all ranks have agreed on. On return
/// the outputs are written, and the inputs are no longer read by anybody.
/// Errors  communication, timeout: the node is failed.
void reduce_inline(Call& call);
void reduce_in_node(Call& call, const Tuning& tuning);
void reduce_in_lanes(Call& call, const Tuning& tuning, LaneExchange* lane);

}  // namespace tutti::collectives
