// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_machine.cuh"
#include "runtime/gpu/kernels/family_descent.hpp"

namespace tutti::gpus::kernels {

using cuda::CudaMachine;

template bool plan_descent<float>(const Optimizer&, std::span<const UpdateStep>,
                                  Plan<CudaMachine>*);
template bool plan_descent<double>(const Optimizer&, std::span<const UpdateStep>,
                                   Plan<CudaMachine>*);

}  // namespace tutti::gpus::kernels
