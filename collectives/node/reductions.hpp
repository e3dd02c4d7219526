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

/// Before the announcement of a call that will take this path, if all ranks plan it: stages its
/// first chunk, where that is how the path begins. Returns the AnnounceFlags that say so: none if
/// it is not, and all of them if there is nothing to stage. Does not throw.
std::uint32_t stage_first(Call& call, const Path& planned, const Tuning& tuning);

}  // namespace tutti::collectives
