// SPDX-License-Identifier: Apache-2.0
// An MPI that hangs.
#pragma once

namespace test {

/// From now on MPI_Test does not return.
void let_mpi_hang();
/// What MPI_Test does first.
void wait_if_stuck();

}  // namespace test
