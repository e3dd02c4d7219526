// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_machine.cuh"
#include "runtime/gpu/kernels/family_adam.hpp"

namespace tutti::gpus::kernels {

using cuda::CudaMachine;

template bool plan_adam_family<float>(const Optimizer&, std::span<const UpdateStep>,
                                      Plan<CudaMachine>*);
template bool plan_adam_family<double>(const Optimizer&, std::span<const UpdateStep>,
                                       Plan<CudaMachine>*);

}  // namespace tutti::gpus::kernels
