// SPDX-License-Identifier: Apache-2.0
// Copies of a store in the memory of the nodes, from which a job that is started again goes on; and
// saves that go on while the program computes, which are made from them.
#pragma once

#include <filesystem>
#include <functional>

#include "tutti/checkpoint.hpp"
#include "tutti/export.h"
#include "tutti/kvstore.hpp"

namespace tutti {

/// Copies what KVStore::save() saves into the memory of every node, where it outlives the ranks if
/// Settings::snapshots names a folder. load() of the directory takes it if it has more pushes than
/// what is there on the disk; nodes that do not have it get it from one that has.
///
/// The ranks of a node copy a part each. Each node keeps the newest snapshot beside the one that is
/// being taken. With gradient compression the residuals of all ranks go to all nodes. Replicas are
/// not compared first, as save() does; pushes have done so. Collective.
/// Errors  out_of_memory, with the sizes; io; invalid_argument and mismatch as save(). The
///         snapshots before stay, and the store goes on.
TUTTI_API void snapshot(KVStore& store, const std::filesystem::path& directory,
                        const Metadata& metadata = {});

/// A snapshot(), if Settings::snapshot_every has passed since the last; true if it was taken. For
/// the end of each step, where `metadata`, which is called on all ranks if one is due, says how to
/// go on. Ranks agree by a message, which they leave out where the next moment is far off. Where
/// a snapshot fails for want of memory, a warning says so and no more are taken. Collective.
TUTTI_API bool snapshot_when_due(KVStore& store, const std::filesystem::path& directory,
                                 const std::function<Metadata()>& metadata);

// KVStore::save_async() is a snapshot() that a thread of rank 0 then writes to the disk, as a
// generation as save() makes it, while the program goes on. On rank 0 the call is complete when the
// generation is there for good; on the others at once. The next save(), save_async() or load() and
// the end of the store wait for that. No other rank takes part, so other calls wait for nothing.
// Where there is too little memory for a snapshot, a warning says so once, with the sizes, and the
// call is save(): it returns when the generation is there.
// Errors  as snapshot(), but for out_of_memory. io: at wait() on rank 0, and at the next of these
//         calls on all ranks.

}  // namespace tutti
