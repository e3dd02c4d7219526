// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/gpu/kernels.hpp"

namespace tutti::cuda {

/// The kernels of one GPU. Errors: invalid_argument if the library has no code for it; of every
/// call of the kernels: communication, out_of_memory, with the call of CUDA.
std::unique_ptr<gpus::Kernels> make_kernels(int device);

}  // namespace tutti::cuda
