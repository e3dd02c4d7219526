// SPDX-License-Identifier: Apache-2.0
// Chooses how the GPUs of a group's ranks sum.
#pragma once

#include <memory>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu/reducer.hpp"
#include "runtime/group.hpp"

namespace tutti::gpus {

/// `device` is this rank's GPU. Collective. Errors, on all ranks alike: invalid_argument if two
/// ranks of a node share a GPU.
std::unique_ptr<Reducer> make_reducer(Group& group, std::shared_ptr<Gpus> gpus, int device);

}  // namespace tutti::gpus
