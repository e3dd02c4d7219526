// SPDX-License-Identifier: Apache-2.0
// Calls of several nodes: shares are summed in the node, exchanged between nodes, and spread.
#pragma once

#include "collectives/choice/tuning.hpp"
#include "collectives/lanes/lane.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Completes a call that all ranks have agreed on. On return the outputs are written, and no rank
/// reads the inputs any more. `lane`: this rank's exchange with other nodes; null if it carries no
/// share.
/// Errors  communication, timeout: the node is failed.
void reduce_in_lanes(Call& call, const Path& path, const Tuning& tuning, LaneExchange* lane);

}  // namespace tutti::collectives
