// SPDX-License-Identifier: Apache-2.0
// Groups of some of the ranks of a group.
#pragma once

#include <memory>
#include <span>

#include "runtime/job/group.hpp"

namespace tutti {

/// The group of the ranks that give this rank's colour, in the order of (key, rank). Collective
/// over `parent`. Errors: on all ranks of it, after which nothing has changed: invalid_argument,
/// mismatch, out_of_memory; or its failure.
std::shared_ptr<Group> split(Group& parent, int color, int key);

/// The group of these ranks of `parent`, in this order; null on the others. Collective over
/// `parent`, with the same list on all its ranks. Errors: as above.
std::shared_ptr<Group> make_subgroup(Group& parent, std::span<const int> ranks);

/// The same group, made by its members alone: no other rank takes part. Collective over them.
/// Errors  invalid_argument, on this rank alone: a list that is none, or that this rank is not in.
///         On all members: out_of_memory; or the parent's failure.
std::shared_ptr<Group> make_group_of_members(Group& parent, std::span<const int> ranks);

}  // namespace tutti
