// SPDX-License-Identifier: Apache-2.0
// Calls of blocks, of messages, and of operations of the program's own: Tutti's and MPI's.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// True for the collectives that are here.
bool is_block_call(const Case& chosen);

/// "alltoallv" and "allgatherv" give blocks of equal sizes: what they cost beside the calls without
/// counts. In "sendrecv" the even rank of a pair sends, then it receives.
Call tutti_block_call(const Job& job, const tutti::Communicator& world);

/// MPI may exchange the operands of "user_allreduce", which is a sum.
Call mpi_block_call(const Job& job, MPI_Datatype type, MPI_Comm comm);

}  // namespace apps::benchmark
