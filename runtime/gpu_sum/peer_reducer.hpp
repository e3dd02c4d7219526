// SPDX-License-Identifier: Apache-2.0
// The sum over the ranks of a node by kernels that read the memory of all of their GPUs.
#pragma once

#include <memory>
#include <string>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// Which jobs have no such sums; empty for one that may have.
std::string peer_obstacle(const collectives::Topology& topology);

/// See peer_reducer.cpp for the picture. Collective. Errors, on all ranks alike: invalid_argument
/// for a job of several nodes or of too many ranks; communication, where one GPU cannot reach
/// another; out_of_memory.
std::unique_ptr<Reducer> make_peer_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device);

}  // namespace tutti::gpus
