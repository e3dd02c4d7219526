// SPDX-License-Identifier: Apache-2.0
// Calls of blocks, of messages, and of operations of the program's own: Tutti's and MPI's.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// True for the collectives whose calls this file makes.
bool is_block_call(const Case& chosen);

/// Tutti's call. "alltoallv" and "allgatherv" get blocks of equal sizes, which shows what counts
/// cost beside the calls without them. In "sendrecv" the even rank of a pair sends, then it
/// receives.
Call tutti_block_call(const Job& job, const tutti::Communicator& world);

/// MPI's call. MPI may exchange the operands of "user_allreduce", which is a sum.
Call mpi_block_call(const Job& job, MPI_Datatype type, MPI_Comm comm);

}  // namespace apps::benchmark
