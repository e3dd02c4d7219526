// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_machine.cuh"
#include "runtime/cuda/kernels.hpp"
#include "runtime/gpu/kernels/table_kernels.hpp"

namespace tutti::cuda {

std::unique_ptr<gpus::Kernels> make_kernels(int device) {
  return std::make_unique<gpus::kernels::TableKernels<CudaMachine>>(device);
}

}  // namespace tutti::cuda
