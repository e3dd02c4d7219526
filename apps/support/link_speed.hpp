// SPDX-License-Identifier: Apache-2.0
// What messages cost between the first two ranks of a job, which are on different hosts.
#pragma once

#include <cstddef>

#include <tutti/mpi.hpp>

namespace apps {

/// Seconds, bytes, and bytes per second, as runtime/simulated/network.hpp means them.
struct LinkSpeed {
  double latency = 0;
  double overhead = 0;
  double port_rate = 0;
  double burst_bytes = 0;
  double header_bytes = 0;
  std::size_t eager_bytes = 0;
  double crowd = 0;  ///< what a message takes longer while all other ranks poll for theirs
};

/// Collective; the result is on rank 0. Other ranks sleep, but for `crowd`.
/// Errors  communication: what MPI says.
LinkSpeed measure_link(MPI_Comm comm);

}  // namespace apps
