// SPDX-License-Identifier: Apache-2.0
// MPI's life in this process. MPI itself is global, so this is the one place with global effects.
#pragma once

#include <mpi.h>

namespace tutti::mpi {

/// Initialises MPI if the program has not; then MPI is also finalised, when the process exits.
/// Errors: communication if MPI cannot be initialised or is finalised already.
void ensure_initialized();

/// True between MPI_Init and MPI_Finalize.
bool is_running();

/// A duplicate that returns errors, freed when MPI is finalised: freeing a communicator is a
/// collective call, which no destructor may make. Collective over `parent`.
MPI_Comm duplicate(MPI_Comm parent);
/// The same for a communicator made by a split.
void free_at_finalize(MPI_Comm comm);

/// At exit, ends the job with this code instead of finalising MPI: after a failure other ranks may
/// never arrive in MPI_Finalize.
void abort_at_exit(int exit_code);

/// Ends the whole job now.
[[noreturn]] void abort_job(int exit_code);

}  // namespace tutti::mpi
