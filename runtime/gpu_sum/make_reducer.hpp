// SPDX-License-Identifier: Apache-2.0
// The choice of the way in which values on GPUs are summed over the ranks (TUTTI_GPU_PATH).
#pragma once

#include <memory>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// Makes the reducer of this rank's `device`. All ranks choose alike, from the facts that they have
/// told each other, and rank 0 logs the choice. `bytes` is the size of the first sum, the same on
/// all ranks. Collective. Errors, on all ranks alike: invalid_argument, if the way that was asked
/// for cannot be had; out_of_memory; communication, timeout.
std::unique_ptr<Reducer> make_reducer(Group& group, const std::shared_ptr<Gpus>& gpus, int device,
                                      std::size_t bytes);

}  // namespace tutti::gpus
