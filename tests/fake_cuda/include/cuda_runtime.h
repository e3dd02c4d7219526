// SPDX-License-Identifier: Apache-2.0
// The language of kernels, for a compiler of C++: all threads of a block run on one thread of the
// host, and one that waits for others is left until they have come (block.cpp).
#pragma once

#include <functional>
#include <tuple>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local

#pragma GCC visibility push(default)

extern thread_local dim3 threadIdx;
extern thread_local dim3 blockIdx;

namespace fake_cuda {

/// Of all 32 threads of a warp: returns the value of the thread `delta` behind, or the own one.
double shuffle_down(double value, unsigned delta);
/// Of all threads of a block.
void wait_for_block();
/// Puts a kernel into a stream; `thread` is what one thread of it does.
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

}  // namespace fake_cuda

#pragma GCC visibility pop

inline double __shfl_down_sync(unsigned /*mask*/, double value, unsigned delta) {
  return fake_cuda::shuffle_down(value, delta);
}
inline void __syncthreads() { fake_cuda::wait_for_block(); }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  return fake_cuda::launch(*config, [kernel, copies = std::tuple<Arguments...>(arguments...)] {
    std::apply(kernel, copies);
  });
}
