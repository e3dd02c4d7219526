// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cuda_machine.cuh"
#include "runtime/cuda/kernels.hpp"
#include "runtime/gpu/kernels/table_kernels.hpp"

namespace tutti::cuda {

namespace {

void require_code(int device) {
  const OnDevice here(device);
  cudaFuncAttributes attributes{};
  const auto kernel = run_tiles<gpus::kernels::SumBody<float>>;
  const cudaError_t status =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  if (status != cudaErrorNoKernelImageForDevice) return check(status, "a kernel's code", device);
  static_cast<void>(cudaGetLastError());
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", device);
  const std::string number = std::to_string(properties.major) + std::to_string(properties.minor);
  throw Error(ErrorCode::invalid_argument,
              "this library has no code for gpu(" + std::to_string(device) + "), " +
                  properties.name + "; build it with -DCMAKE_CUDA_ARCHITECTURES=" + number);
}

}  // namespace

std::unique_ptr<gpus::Kernels> make_kernels(int device) {
  require_code(device);
  return std::make_unique<gpus::kernels::TableKernels<CudaMachine>>(device);
}

}  // namespace tutti::cuda
