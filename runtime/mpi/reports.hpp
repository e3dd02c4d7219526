// SPDX-License-Identifier: Apache-2.0
// Where the reports of a job's ranks go.
#pragma once

#include <vector>

#include "tutti/settings.hpp"

#include "collectives/job/topology.hpp"
#include "runtime/mpi/early_collectives.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "runtime/observe/reports.hpp"

namespace tutti::mpi {

/// Makes the traces' files, and sees to it that MPI_Finalize prints the statistics. Collective.
/// Errors: io, on all ranks, if a file of any rank cannot be written.
ReportTargets report_targets(EarlyCollectives& ranks, const HostRanks& host,
                             const collectives::Topology& topology, const Settings& settings);

}  // namespace tutti::mpi
