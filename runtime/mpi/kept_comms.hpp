// SPDX-License-Identifier: Apache-2.0
// The communicators of groups that have ended, kept for later groups of the same ranks. An MPI has
// some thousands of communicators, and freeing one is a wait for other ranks without a deadline
// (README.md). A group that takes a kept one gets a number of its own, so that its messages do not
// match late ones of the groups before it.
#pragma once

#include <memory>
#include <optional>

#include "runtime/job/group.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

/// The use of a communicator by a group, and by the groups that come from it.
struct CommOfGroup {
  int number = 0;  ///< number of the group among all that have had the communicator
  /// The communicator is given back when this is destroyed.
  std::shared_ptr<GroupNumbers> numbers = std::make_shared<GroupNumbers>();
};

/// Lets `ranks`, all of MPI_COMM_WORLD, meet in a communicator of their own: one that is free on
/// all ranks, or else a new one. Collective.
CommOfGroup take_comm_of_world(EarlyCollectives& ranks);

/// Keeps a communicator of a group that has ended, which is not freed, for drop_notices(). Local.
void keep_until_end(const Comm& comm);

/// Receives and drops the notices that have arrived for groups which have ended, at the end of the
/// job: UCX warns of each message that nobody has received, on standard output. As a rule all have
/// arrived once all ranks are at their end. Local.
void drop_notices();

/// Returns a rank of another node that has sent data of a call of a group of all ranks, which this
/// rank has not received, because it has not made that call; empty if none has. Local.
std::optional<int> who_has_sent();

}  // namespace tutti::mpi
