// SPDX-License-Identifier: Apache-2.0
// The layout of ranks in nodes, and their names, as each node stores them.
//
//   layout   a rule, if all nodes have the same number of ranks, numbered consecutively or in turn:
//            four numbers that all ranks compare; otherwise a table
//   names    host and process of every rank, for messages: a table
//
// A table lies in the arena of the node's first rank, where all ranks of the node read it. Only the
// first ranks exchange its contents, and no other rank allocates memory proportional to their
// number.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"

namespace tutti::mpi {

/// Returns names for messages while there is no table: those of this host's ranks.
std::shared_ptr<const collectives::RankNames> names_on_host(const HostRanks& host);

/// Fills in the topology of `parts`, whose node has been mapped. `node` has the places of its ranks
/// in `host`. Collective. Errors, on all ranks alike: out_of_memory.
void lay_out(EarlyCollectives& ranks, const HostRanks& host, const std::vector<std::size_t>& node,
             GroupParts& parts);

}  // namespace tutti::mpi
