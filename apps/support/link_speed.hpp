// SPDX-License-Identifier: Apache-2.0
// What messages cost between the first two ranks of a job, which are on different hosts.
#pragma once

#include <cstddef>

#include <tutti/mpi.hpp>

namespace apps {

/// Seconds, bytes, and bytes per second, as runtime/simulated/network.hpp means them.
struct LinkSpeed {
  double latency = 0;
  double overhead = 0;          ///< of a message, at its sender
  double receive_overhead = 0;  ///< and at its receiver
  double poll = 0;              ///< of a look at a message that has not come
  double port_rate = 0;
  double burst_bytes = 0;
  double header_bytes = 0;
  std::size_t eager_bytes = 0;
  double round = 0;  ///< in which the ranks of a core look once each, and give it on
};

/// Collective; the result is on rank 0. Other ranks sleep, but for `round`.
/// Errors  communication: what MPI says.
LinkSpeed measure_link(MPI_Comm comm);

}  // namespace apps
