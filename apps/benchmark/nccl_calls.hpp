// SPDX-License-Identifier: Apache-2.0
// NCCL as a backend: what a program gets that calls it by itself, over all ranks.
#pragma once

#include <memory>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// Errors  invalid_argument, with the reason, if this build or this machine has no NCCL. Local.
void require_nccl();

/// A communicator of NCCL, one for all sizes: to make it takes longer than to use it.
class NcclWorld {
 public:
  virtual ~NcclWorld() = default;

  /// ncclAllReduce (sum) of each pair of tensors, as one group, in the stream of the rank's GPU;
  /// returns when the stream has run.
  virtual Call allreduce() = 0;
};

/// Collective over `comm`, which has the ranks of `world`. A rank without its peers gives up after
/// `timeout`. Errors: invalid_argument, communication (NCCL's own words), timeout.
std::unique_ptr<NcclWorld> join_nccl(tutti::Communicator& world, MPI_Comm comm,
                                     std::chrono::duration<double> timeout);

}  // namespace apps::benchmark
