// SPDX-License-Identifier: Apache-2.0
// The Machine of a variant on a GPU.
#pragma once

#include "runtime/cuda/cuda_machine.cuh"
#include "tests/gpu/variants/bulk.hpp"
#include "tests/gpu/variants/variant_on.hpp"

namespace test::variants {

using kernels::kBlockThreads;
using kernels::kLanes;
using kernels::kWarps;

template <class Body>
__global__ void __launch_bounds__(kBlockThreads, Body::kBlocksPerSm)
    run_persistently(std::uint32_t num_tiles, const __grid_constant__ Body body) {
  const std::uint32_t stride = gridDim.x * kWarps;
  for (std::uint32_t tile = blockIdx.x * kWarps + threadIdx.x / kLanes; tile < num_tiles;
       tile += stride) {
    body(tile, threadIdx.x % kLanes);
  }
}

/// The Engine of walk_tiles() for one lane of a warp. A place's barrier counts the bytes that have
/// come; lane 0 says how many there will be. Source: PTX ISA, cp.async.bulk and mbarrier.
template <class Body>
struct BulkEngine {
  const Body& body;
  std::byte* places;      ///< the warp's, in shared memory
  std::uint64_t* filled;  ///< barrier of each place
  std::uint32_t lane;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ static std::uint32_t shared(const void* address) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
  }

  __device__ void begin() {
    if (lane == 0) {
      for (std::uint32_t place = 0; place < kStages; ++place) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(filled + place)));
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
  }

  __device__ void fetch(std::uint32_t tile, std::uint32_t place) {
    if (lane != 0) return;
    const std::uint32_t barrier = shared(filled + place);
    std::uint32_t bytes = 0;
    body.each_copy(tile,
                   [&](std::uint32_t, const std::byte*, std::uint32_t more) { bytes += more; });
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    const std::uint32_t base = shared(places) + place * Body::kStageBytes;
    body.each_copy(tile, [&](std::uint32_t offset, const std::byte* from, std::uint32_t size) {
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(base + offset),
          "l"(__cvta_generic_to_global(from)), "r"(size), "r"(barrier)
          : "memory");
    });
  }

  /// Without a bound: what it waits for is the GPU's own copy, which ends, or ends the kernel.
  __device__ void await(std::uint32_t place, std::uint32_t parity) {
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(shared(filled + place)), "r"(parity)
          : "memory");
    }
  }

  __device__ void compute(std::uint32_t tile, std::uint32_t place) {
    body.compute(tile, lane, places + place * Body::kStageBytes);
  }
  __device__ void leave(std::uint32_t /*place*/) { __syncwarp(); }
#endif
};

template <class Body>
__global__ void __launch_bounds__(kBlockThreads, Body::kBlocksPerSm)
    run_bulk([[maybe_unused]] std::uint32_t num_tiles,
             [[maybe_unused]] const __grid_constant__ Body body) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte places[];
  __shared__ std::uint64_t filled[kWarps][kStages];
  const std::uint32_t warp = threadIdx.x / kLanes;
  BulkEngine<Body> engine{body, places + warp * kStages * Body::kStageBytes, filled[warp],
                          threadIdx.x % kLanes};
  engine.begin();
  walk_tiles(blockIdx.x * kWarps + warp, gridDim.x * kWarps, num_tiles, engine);
#else
  __trap();
#endif
}

/// Only the launches of sums and elementwise formulas differ from the library's.
template <class TheShape>
class CudaVariantMachine : public tutti::cuda::CudaMachine {
 public:
  using Shape = TheShape;

  explicit CudaVariantMachine(int device) : CudaMachine(device) {}

  [[nodiscard]] std::string obstacle() const {
    if (!Shape::kIsBulk || attribute(cudaDevAttrComputeCapabilityMajor) >= 9) return {};
    return "needs compute capability 9";
  }

  template <class Body>
  void run(tutti::gpus::Stream stream, std::uint32_t num_tiles, const Body& body) {
    if (num_tiles == 0) return;
    const tutti::cuda::OnDevice guard(device());
    if constexpr (Shape::kIsBulk) {
      using Bulk = BulkBody<Body>;
      constexpr int kBytes = kWarps * kStages * Bulk::kStageBytes;
      tutti::cuda::check(
          cudaFuncSetAttribute(run_bulk<Bulk>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
          "cudaFuncSetAttribute", device());
      launch(run_bulk<Bulk>, grid(run_bulk<Bulk>, num_tiles, kBytes), stream, kBytes, num_tiles,
             Bulk(body));
    } else if constexpr (Shape::kIsPersistent) {
      launch(run_persistently<Body>, grid(run_persistently<Body>, num_tiles, 0), stream, 0,
             num_tiles, body);
    } else {
      CudaMachine::run(stream, num_tiles, body);
    }
  }

 private:
  [[nodiscard]] int attribute(cudaDeviceAttr which) const {
    int value = 0;
    tutti::cuda::check(cudaDeviceGetAttribute(&value, which, device()), "cudaDeviceGetAttribute",
                       device());
    return value;
  }

  /// As many blocks as the GPU holds at a time, or fewer if there is less work.
  template <class Kernel>
  [[nodiscard]] std::uint32_t grid(Kernel kernel, std::uint32_t num_tiles,
                                   std::size_t shared_bytes) const {
    int per_sm = 0;
    tutti::cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                           &per_sm, kernel, static_cast<int>(kBlockThreads), shared_bytes),
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor", device());
    const auto most =
        static_cast<std::uint32_t>(per_sm * attribute(cudaDevAttrMultiProcessorCount));
    return std::min(std::max(most, 1u), blocks(num_tiles));
  }
};

}  // namespace test::variants
