// SPDX-License-Identifier: Apache-2.0
// The destinations of the reports of a job's ranks.
#pragma once

#include <vector>

#include "tutti/settings.hpp"

#include "collectives/job/topology.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "runtime/observe/reports.hpp"

namespace tutti::mpi {

/// Creates the trace files, and makes MPI_Finalize print the statistics. Collective. Errors: io, on
/// all ranks, if a file of any rank cannot be written.
ReportTargets report_targets(EarlyCollectives& ranks, const HostRanks& host,
                             const collectives::Topology& topology, const Settings& settings);

}  // namespace tutti::mpi
