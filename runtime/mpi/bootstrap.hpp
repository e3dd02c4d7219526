// SPDX-License-Identifier: Apache-2.0
// Making a group of the ranks of an MPI job.
#pragma once

#include <memory>

#include "runtime/job/group.hpp"
#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi {

/// Which threads, of a group on one node, let MPI progress while they wait: any one if each call of
/// the group is made inside an MPI call of the program, else the one that makes the group.
enum class Callers { of_library, of_mpi };

/// Returns the group of all ranks of MPI_COMM_WORLD. Loads and initialises MPI if needed.
/// Collective. Null in a job of one rank on a machine without an MPI. Errors: invalid_argument on
/// all ranks if their settings, library versions or floating-point modes differ, with both values;
/// io, out_of_memory, communication.
std::shared_ptr<Group> make_world_group(const Settings& settings,
                                        Callers callers = Callers::of_library);

/// Returns the group of the ranks of an intracommunicator, which is duplicated. Otherwise like
/// make_world_group().
std::shared_ptr<Group> make_group(const Comm& comm, const Settings& settings);

}  // namespace tutti::mpi
