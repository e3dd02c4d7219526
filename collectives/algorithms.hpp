// SPDX-License-Identifier: Apache-2.0
// The algorithms, one file each; tuning.hpp chooses between them.
#pragma once

#include "collectives/call.hpp"
#include "collectives/lane.hpp"
#include "collectives/tuning.hpp"

namespace tutti::collectives {

/// Every algorithm completes an allreduce or a broadcast that all ranks have agreed on. On return
/// the outputs are written, and no rank reads the inputs any more.
/// Errors  communication, timeout: the node is failed.
void reduce_inline(Call& call);
void reduce_alone(Call& call, const Tuning& tuning);
void reduce_in_node(Call& call, const Path& path, const Tuning& tuning);
void reduce_in_lanes(Call& call, const Path& path, const Tuning& tuning, LaneExchange* lane);

}  // namespace tutti::collectives
