// SPDX-License-Identifier: Apache-2.0
// Making groups of some of the ranks of a group.
#pragma once

#include <memory>
#include <span>

#include "runtime/job/group.hpp"

namespace tutti {

/// Returns the group of the ranks that pass the same colour, in the order of (key, rank).
/// Collective over `parent`. Errors, on all its ranks, after which nothing has changed:
/// invalid_argument, mismatch, out_of_memory; or the parent's failure.
std::shared_ptr<Group> split(Group& parent, int color, int key);

/// Returns the group of these ranks of `parent`, in this order, and null on other ranks. Collective
/// over `parent`, with the same list on all its ranks. Errors: as above.
std::shared_ptr<Group> make_subgroup(Group& parent, std::span<const int> ranks);

/// Returns the same group, made by its members alone. Collective over the members. Errors:
/// invalid_argument, on this rank alone, for a list that is invalid, or that does not have this
/// rank; on all members: out_of_memory, or the parent's failure.
std::shared_ptr<Group> make_group_of_members(Group& parent, std::span<const int> ranks);

}  // namespace tutti
