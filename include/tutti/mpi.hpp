// SPDX-License-Identifier: Apache-2.0
// For programs that use MPI beside the library. The only public header that shows <mpi.h>.
#pragma once

#include <mpi.h>
#include <string>

#include "tutti/communicator.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.h"
#include "tutti/settings.hpp"

namespace tutti {

/// A duplicate of MPI_COMM_WORLD that returns errors, for the program's own messages. MPI is
/// initialised if it was not, and finalised when the process exits. Freed by the library.
/// Order   collective. Errors  communication.
TUTTI_API MPI_Comm duplicate_world();

/// The ranks of an intracommunicator of MPI, in its order. Their memory and messages are their own:
/// what another communicator has allocated is ordinary memory to this one. To share memory between
/// groups, make one Communicator and split() that. `comm` is duplicated, and may be freed.
/// MPI must be initialised.
/// Order   collective over `comm`.
/// Errors  invalid_argument: MPI_COMM_NULL, an intercommunicator, on this rank alone; what
///         Communicator::world() throws, on all.
TUTTI_API Communicator communicator_from(MPI_Comm comm,
                                         const Settings& settings = Settings::from_environment());

/// The MPI library that is loaded, such as "Open MPI v4.1.4" or "MPICH 4.0.2". May be called before
/// MPI_Init.
TUTTI_API std::string mpi_version();
/// The MPI that the library was built with, in the same words.
TUTTI_API std::string mpi_of_build();

/// MPI's names of element types and reductions. MPI can move 16-bit floating-point types (as
/// MPI_UINT16_T), but not reduce them.
/// MPI has no average: MPI_OP_NULL.
TUTTI_API MPI_Datatype mpi_datatype(DType dtype) noexcept;
TUTTI_API MPI_Op mpi_operation(ReduceOp op) noexcept;

}  // namespace tutti
