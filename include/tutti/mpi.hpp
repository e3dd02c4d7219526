// SPDX-License-Identifier: Apache-2.0
// For programs that use MPI beside the library. The only public header that shows <mpi.h>.
#pragma once

#include <mpi.h>

namespace tutti {

/// A duplicate of MPI_COMM_WORLD that returns errors, for the program's own messages. MPI is
/// initialised if it was not, and finalised when the process exits. Freed by the library.
/// Order   collective. Errors  communication.
MPI_Comm duplicate_world();

}  // namespace tutti
