// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include "runtime/group.hpp"

namespace tutti::gpus {

/// Communicator::allreduce (sum) of tensors on one GPU. Collective. Errors: as there.
void allreduce(Group& group, const ConstTensorView& input, const TensorView& output);

}  // namespace tutti::gpus
