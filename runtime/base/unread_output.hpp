// SPDX-License-Identifier: Apache-2.0
// Output of this process that its launcher has not read yet.
#pragma once

namespace tutti {

/// Waits until the reader of this rank's output and errors has read them, for at most a second.
/// MPICH's mpiexec exits as soon as it learns of MPI_Abort, and loses what it has not read by then,
/// such as the error message. Local.
void wait_for_reader() noexcept;

}  // namespace tutti
