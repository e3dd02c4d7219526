// SPDX-License-Identifier: Apache-2.0
#include "tutti/gpu.hpp"

#include "runtime/gpu/gpus.hpp"
#include "runtime/job/group.hpp"

namespace tutti {

Device gpu_of(const Communicator& communicator) {
  const auto gpus = gpus::require_gpus("gpu_of", gpu(0));
  return gpu(communicator.group()->local_rank_in_job() % gpus->count());
}

}  // namespace tutti
