// SPDX-License-Identifier: Apache-2.0
// A common origin of time for the hosts of a job.
#pragma once

#include <cstdint>

#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"

namespace tutti::mpi {

/// Returns this host's CLOCK_MONOTONIC, in nanoseconds, at a moment that is the same for all ranks:
/// now, on the clock of rank 0's host. Ranks of a host share one clock. Clocks of hosts are
/// compared along a binomial tree, by messages in both directions; the fastest of several has an
/// error of at most half its time for each edge from rank 0's host. Collective.
std::int64_t common_origin_ns(EarlyCollectives& ranks, const HostRanks& host);

}  // namespace tutti::mpi
