// SPDX-License-Identifier: Apache-2.0
// The facts of all ranks on rank 0, by MPI's own calls: they work where the library's do not yet.
#pragma once

#include <vector>

#include <tutti/mpi.hpp>

#include "apps/doctor/facts.hpp"

namespace apps::doctor {

/// All ranks' facts, in their order, on rank 0; empty elsewhere. Fills in rank, MPI and clocks.
/// Order   collective. Errors  timeout: a rank did not answer within a minute; communication.
std::vector<Facts> gather(MPI_Comm comm, Facts mine);

/// Completes rank 0's facts with the node that every rank's memory is shared in.
/// Order and errors: as above.
void gather_nodes(MPI_Comm comm, int node, std::vector<Facts>& ranks);

/// Rank 0's value, on all ranks. Order and errors: as above.
int share(MPI_Comm comm, int value);

}  // namespace apps::doctor
