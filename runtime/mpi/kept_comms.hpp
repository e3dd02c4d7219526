// SPDX-License-Identifier: Apache-2.0
// MPI's communicators of groups that have ended. An MPI has some thousands of them, and none can be
// freed without a wait for other ranks that has no deadline (README.md), so the next group of the
// same ranks takes one of them. Its messages have a number that none before had, and do not meet
// what the old group's ranks have sent.
#pragma once

#include <memory>

#include "runtime/job/group.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

/// A communicator's part in a group: for the group's transport, and for groups that come from it.
struct CommOfGroup {
  int number = 0;  ///< of the group among those of the communicator
  /// Its owners keep the communicator.
  std::shared_ptr<GroupNumbers> numbers = std::make_shared<GroupNumbers>();
};

/// `ranks` meet in a communicator of their own from now on: one that an ended group of all ranks of
/// MPI_COMM_WORLD had, on every rank, or a new one. Collective over all ranks of MPI_COMM_WORLD.
CommOfGroup take_comm_of_world(EarlyCollectives& ranks);

}  // namespace tutti::mpi
