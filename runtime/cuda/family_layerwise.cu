// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_machine.cuh"
#include "runtime/gpu/kernels/family_layerwise.hpp"

namespace tutti::gpus::kernels {

using cuda::CudaMachine;

template bool plan_layerwise<float>(const Optimizer&, std::span<const UpdateStep>,
                                    Plan<CudaMachine>*);
template bool plan_layerwise<double>(const Optimizer&, std::span<const UpdateStep>,
                                     Plan<CudaMachine>*);

}  // namespace tutti::gpus::kernels
