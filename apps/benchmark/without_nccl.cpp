// SPDX-License-Identifier: Apache-2.0
// In place of nccl_calls.cu, where a build found no nvcc or no header of NCCL.
#include <tutti/error.hpp>

#include "apps/benchmark/nccl_calls.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {

void require_nccl() { throw_bad_option("--backend nccl: this build has no NCCL"); }

std::unique_ptr<NcclWorld> join_nccl(tutti::Communicator&, MPI_Comm,
                                     std::chrono::duration<double>) {
  require_nccl();
  return nullptr;
}

}  // namespace apps::benchmark
