// SPDX-License-Identifier: Apache-2.0
// The cost of messages between the first two ranks of a job, which are on different hosts.
#pragma once

#include <cstddef>

#include <tutti/mpi.hpp>

namespace apps {

/// Seconds, bytes, and bytes per second, in the meanings of runtime/simulated/network.hpp.
struct LinkSpeed {
  double latency = 0;
  double overhead = 0;          ///< cost of a message at its sender
  double receive_overhead = 0;  ///< cost of a message at its receiver
  double poll = 0;              ///< time of a look at a message that has not come
  double port_rate = 0;
  double burst_bytes = 0;
  double header_bytes = 0;
  std::size_t eager_bytes = 0;
  double round = 0;  ///< time in which each rank of a core looks once, and gives the core away
};

/// Measures the link. Collective; the result is on rank 0. Other ranks sleep, except while `round`
/// is measured.
/// Errors  communication: an error of MPI.
LinkSpeed measure_link(MPI_Comm comm);

}  // namespace apps
