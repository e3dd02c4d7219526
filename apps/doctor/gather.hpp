// SPDX-License-Identifier: Apache-2.0
// The facts of all ranks on rank 0, by messages of MPI: they work where the library's calls do not
// yet.
#pragma once

#include <vector>

#include <tutti/mpi_abi.hpp>

#include "apps/doctor/rank_info.hpp"

namespace apps::doctor {

/// All ranks' facts, in their order, on rank 0; empty elsewhere. Fills in rank, MPI and clocks.
/// Order   collective. Errors  timeout: a rank did not answer in time; communication.
std::vector<RankInfo> gather(const tutti::MpiMessages& job, RankInfo mine);

/// Completes rank 0's facts with what the library of every rank says: the node that its memory is
/// shared in, and why ranks of the node cannot read each other's. Order and errors: as above.
void gather_nodes(const tutti::MpiMessages& job, int node, const std::string& why_unreadable,
                  std::vector<RankInfo>& ranks);

/// Rank 0's value, on all ranks. Order and errors: as above.
int share(const tutti::MpiMessages& job, int value);

}  // namespace apps::doctor
