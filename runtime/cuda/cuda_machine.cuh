// SPDX-License-Identifier: Apache-2.0
// A GPU as a Machine of staging.hpp.
#pragma once

#include <cuda_runtime.h>

#include "runtime/cuda/check.hpp"
#include "runtime/gpu/kernels.hpp"
#include "runtime/gpu/kernels/lanes.hpp"

namespace tutti::cuda {

using gpus::kernels::kBlockThreads;
using gpus::kernels::kLanes;
using gpus::kernels::kWarps;

template <class Body>
__global__ void __launch_bounds__(kBlockThreads, Body::kBlocksPerSm)
    run_tiles(std::uint32_t num_tiles, const __grid_constant__ Body body) {
  const std::uint32_t tile = blockIdx.x * kWarps + threadIdx.x / kLanes;
  if (tile < num_tiles) body(tile, threadIdx.x % kLanes);
}

/// Gives lane 0 the sum of all lanes, added in pairs: l and l + 16, then l + 8, ...
__device__ inline double warp_sum(double value) {
  for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) {
    value += __shfl_down_sync(0xFFFFFFFFu, value, half);
  }
  return value;
}

template <class Body>
__global__ void __launch_bounds__(kBlockThreads, Body::kBlocksPerSm)
    run_warp_sums(std::uint32_t num_groups, const __grid_constant__ Body body) {
  const std::uint32_t group = blockIdx.x * kWarps + threadIdx.x / kLanes;
  if (group >= num_groups) return;
  const double sum = warp_sum(body(group, threadIdx.x % kLanes));
  if (threadIdx.x % kLanes == 0) body.store_sum(group, sum);
}

/// Sums over a block: the sums of its warps are added in pairs, too.
template <class Body>
__global__ void __launch_bounds__(kBlockThreads, Body::kBlocksPerSm)
    run_block_sums(const __grid_constant__ Body body) {
  __shared__ double sums[kWarps];
  const double sum = warp_sum(body(blockIdx.x, threadIdx.x));
  if (threadIdx.x % kLanes == 0) sums[threadIdx.x / kLanes] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (std::uint32_t half = kWarps / 2; half > 0; half /= 2) {
    for (std::uint32_t warp = 0; warp < half; ++warp) sums[warp] += sums[warp + half];
  }
  body.store_sum(blockIdx.x, sums[0]);
}

class CudaMachine {
 public:
  using Event = cudaEvent_t;
  using Shape = gpus::kernels::UsualShape;

  explicit CudaMachine(int device) : device_(device) {}

  std::byte* allocate(std::size_t bytes) {
    const OnDevice guard(device_);
    void* memory = nullptr;
    const BesideCaptures beside;
    check(cudaMalloc(&memory, bytes), "cudaMalloc", device_);
    return static_cast<std::byte*>(memory);
  }
  /// Errors are ignored: at the end of a process the driver may be gone already.
  void release(std::byte* memory) noexcept {
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaFree(memory));
  }

  std::byte* allocate_pinned(std::size_t bytes) {
    const OnDevice guard(device_);
    void* memory = nullptr;
    const BesideCaptures beside;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc", device_);
    return static_cast<std::byte*>(memory);
  }
  void release_pinned(std::byte* memory) noexcept {
    const OnUsedDevice here;
    const BesideCaptures beside;
    ignore(cudaFreeHost(memory));
  }

  void copy(gpus::Stream stream, std::byte* to, const std::byte* from, std::size_t bytes) {
    const OnDevice guard(device_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(stream)),
          "cudaMemcpyAsync", device_);
  }

  Event create_event() {
    const OnDevice guard(device_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags",
          device_);
    return event;
  }
  void destroy_event(Event event) noexcept {
    const OnUsedDevice here;
    ignore(cudaEventDestroy(event));
  }
  void record(Event event, gpus::Stream stream) {
    const OnDevice guard(device_);
    check(cudaEventRecord(event, cuda_stream(stream)), "cudaEventRecord", device_);
  }
  bool done(Event event) {
    const OnUsedDevice here;
    const BesideCaptures beside;
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // CUDA keeps cudaErrorNotReady as an error
      return false;
    }
    check(status, "cudaEventQuery", device_);
    return true;
  }

  template <class Body>
  void run(gpus::Stream stream, std::uint32_t num_tiles, const Body& body) {
    if (num_tiles == 0) return;
    const OnDevice guard(device_);
    launch(run_tiles<Body>, blocks(num_tiles), stream, 0, num_tiles, body);
  }

  template <std::uint32_t kThreads, class Body>
  void run_sums(gpus::Stream stream, std::uint32_t num_groups, const Body& body) {
    if (num_groups == 0) return;
    const OnDevice guard(device_);
    if constexpr (kThreads == kLanes) {
      launch(run_warp_sums<Body>, blocks(num_groups), stream, 0, num_groups, body);
    } else {
      static_assert(kThreads == kBlockThreads);
      launch(run_block_sums<Body>, num_groups, stream, 0, body);
    }
  }

 protected:
  /// A launch by <<<>>> would report errors together with those that the program has left behind.
  template <class... Parameters, class... Arguments>
  void launch(void (*kernel)(Parameters...), std::uint32_t blocks, gpus::Stream stream,
              std::size_t shared_bytes, const Arguments&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = kBlockThreads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = cuda_stream(stream);
    check(cudaLaunchKernelEx(&config, kernel, arguments...), "cudaLaunchKernelEx", device_);
  }

  [[nodiscard]] int device() const { return device_; }
  static std::uint32_t blocks(std::uint32_t num_warps) { return (num_warps + kWarps - 1) / kWarps; }

 private:
  static cudaStream_t cuda_stream(gpus::Stream stream) { return static_cast<cudaStream_t>(stream); }

  int device_;
};

}  // namespace tutti::cuda
