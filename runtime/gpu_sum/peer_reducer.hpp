// SPDX-License-Identifier: Apache-2.0
// The sum over the ranks of a node by kernels that read the memory of all of their GPUs.
#pragma once

#include <memory>
#include <string>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// The reason why a job cannot have such sums; empty if it may have them.
std::string peer_obstacle(const collectives::Topology& topology);

/// Makes a reducer by peers; peer_reducer.cpp has the picture. Collective. Errors, on all ranks
/// alike: invalid_argument for a job of several nodes or of too many ranks; communication, where
/// one GPU cannot reach another; out_of_memory.
std::unique_ptr<Reducer> make_peer_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device);

}  // namespace tutti::gpus
