// SPDX-License-Identifier: Apache-2.0
// Reduces calls on several nodes: shares are summed in the node, exchanged between nodes, and
// distributed.
#pragma once

#include "collectives/choice/tuning.hpp"
#include "collectives/lanes/lane.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Completes a call that all ranks have agreed on. On return the outputs are written, and no rank
/// reads the inputs any more. `lane` is this rank's exchange with other nodes; null if it carries
/// no share. Errors: communication, timeout; the group has then failed.
void reduce_in_lanes(Call& call, const Path& path, const Tuning& tuning, LaneExchange* lane);

}  // namespace tutti::collectives
