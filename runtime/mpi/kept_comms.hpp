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

/// Receives and drops the messages that have arrived in a communicator, because the groups that
/// they were sent to have ended: they would pile up, and UCX warns of each on standard output in
/// MPI_Finalize. Local.
void drop_messages(const Comm& comm);
/// The same for the communicators of all ranks.
void drop_messages_of_world();

/// Returns a rank of another node that has sent data of a call of a group of all ranks, which this
/// rank has not received, because it has not made that call; empty if none has. Local.
std::optional<int> who_has_sent();

}  // namespace tutti::mpi
