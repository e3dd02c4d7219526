// SPDX-License-Identifier: Apache-2.0
// One clock for the hosts of a job.
#pragma once

#include <cstdint>

#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"

namespace tutti::mpi {

/// This host's CLOCK_MONOTONIC, in nanoseconds, in a moment that is the same for all ranks: now, on
/// the clock of rank 0's host. Ranks of a host have one clock. Those of hosts are compared along a
/// binomial tree, by messages there and back: the quickest of several is wrong by half its time at
/// most, for each edge from rank 0's host. Collective.
std::int64_t common_origin_ns(EarlyCollectives& ranks, const HostRanks& host);

}  // namespace tutti::mpi
