// SPDX-License-Identifier: Apache-2.0
// How the ranks of an MPI job become a group.
#pragma once

#include <memory>

#include "runtime/job/group.hpp"
#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi {

/// All ranks of MPI_COMM_WORLD. Loads and initialises MPI if need be. Collective. Null if this is a
/// job of one rank on a machine without an MPI.
/// Errors  invalid_argument on all ranks if their settings, library versions or floating-point
///         modes differ, with both values; io, out_of_memory, communication.
std::shared_ptr<Group> make_world_group(const Settings& settings);

/// The ranks of an intracommunicator, which is duplicated. Otherwise as make_world_group().
std::shared_ptr<Group> make_group(const Comm& comm, const Settings& settings);

}  // namespace tutti::mpi
