// SPDX-License-Identifier: Apache-2.0
// Which ranks are in which node, and their names, as each node keeps them.
//
//   layout   a rule, where all nodes have equally many ranks that follow each other or are dealt
//            out in turn: four numbers that all ranks compare. Otherwise a table.
//   names    host and process of every rank, for messages: a table
//
// A table lies in the arena of the node's first rank, where all ranks of the node read it. So the
// first ranks alone exchange what it has, and nobody else ever has as much as one word per rank.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"

namespace tutti::mpi {

/// Names for messages while there is no table: those of this host's ranks.
std::shared_ptr<const collectives::RankNames> names_on_host(const HostRanks& host);

/// Fills the topology of `parts`, whose node is mapped: `node` has the places of its ranks in
/// `host`. Collective. Errors, on all ranks alike: out_of_memory.
void lay_out(EarlyCollectives& ranks, const HostRanks& host, const std::vector<std::size_t>& node,
             GroupParts& parts);

}  // namespace tutti::mpi
