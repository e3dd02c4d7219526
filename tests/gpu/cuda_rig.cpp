// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/kernels.hpp"
#include "tests/gpu/rig.hpp"

namespace test {

namespace {

/// The first GPU, in its default stream, which cudaMemcpy waits for.
class CudaRig final : public Rig {
 public:
  tutti::gpus::Kernels& kernels() override { return *kernels_; }

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    tutti::cuda::check(cudaMalloc(&memory, bytes), "cudaMalloc", 0);
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { static_cast<void>(cudaFree(memory)); }
  void write(std::byte* to, const void* from, std::size_t bytes) override { move(to, from, bytes); }
  void read(void* to, const std::byte* from, std::size_t bytes) override { move(to, from, bytes); }

 private:
  static void move(void* to, const void* from, std::size_t bytes) {
    tutti::cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy", 0);
    tutti::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", 0);
  }

  std::unique_ptr<tutti::gpus::Kernels> kernels_ = tutti::cuda::make_kernels(0);
};

}  // namespace

std::unique_ptr<Rig> make_rig() { return std::make_unique<CudaRig>(); }

}  // namespace test
