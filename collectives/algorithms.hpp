// SPDX-License-Identifier: Apache-2.0
// The algorithms, one file each; tuning.hpp chooses between them.
#pragma once

#include "collectives/call.hpp"
#include "collectives/lane.hpp"
#include "collectives/tuning.hpp"

namespace tutti::collectives {

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
