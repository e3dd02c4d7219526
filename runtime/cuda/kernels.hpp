// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/gpu/kernels.hpp"

namespace tutti::cuda {

/// The kernels of one GPU. Errors, of every call: communication, with the call of CUDA.
std::unique_ptr<gpus::Kernels> make_kernels(int device);

}  // namespace tutti::cuda
