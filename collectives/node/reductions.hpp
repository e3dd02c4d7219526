// SPDX-License-Identifier: Apache-2.0
// The algorithms within a node, each in a source of its own; choice/tuning.hpp chooses among them.
#pragma once

#include "collectives/choice/tuning.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Each algorithm completes a call that all ranks of the node have agreed on. On return the outputs
/// are written, and no rank reads the inputs any more. Errors: communication, timeout; the group
/// has then failed.
void reduce_inline(Call& call);
void reduce_alone(Call& call, const Tuning& tuning);
void reduce_in_node(Call& call, const Path& path, const Tuning& tuning);

}  // namespace tutti::collectives
