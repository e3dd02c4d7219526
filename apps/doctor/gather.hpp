// SPDX-License-Identifier: Apache-2.0
// Gathers the facts of all ranks on rank 0, by messages of MPI, which work where the library's
// calls do not yet.
#pragma once

#include <vector>

#include <tutti/mpi_abi.hpp>

#include "apps/doctor/rank_info.hpp"

namespace apps::doctor {

/// Gathers all ranks' facts, in their order, on rank 0; the result is empty elsewhere. Fills in
/// rank, MPI and clocks.
/// Order   collective. Errors  timeout: a rank did not answer in time; communication.
std::vector<RankInfo> gather(const tutti::MpiMessages& job, RankInfo mine);

/// Completes rank 0's facts by those of the library of every rank: the node whose memory it shares,
/// and the reason why ranks of the node cannot read each other's memory. Order and errors: those of
/// gather().
void gather_nodes(const tutti::MpiMessages& job, int node, const std::string& why_unreadable,
                  std::vector<RankInfo>& ranks);

/// Gives rank 0's value to all ranks. Order and errors: those of gather().
int share(const tutti::MpiMessages& job, int value);

}  // namespace apps::doctor
