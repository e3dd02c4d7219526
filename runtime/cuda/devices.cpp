// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/devices.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {
namespace {

/// Without a driver CUDA says that the driver is too old, which sends people the wrong way.
std::string why_none(cudaError_t status) {
  int driver = 0;
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "there is no GPU here";
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "there is no GPU here, or its driver (libcuda.so.1) is not installed";
  }
  return cudaGetErrorString(status);
}

}  // namespace

Devices find_devices() {
  Devices devices;
  const cudaError_t status = cudaGetDeviceCount(&devices.count);
  if (status == cudaSuccess && devices.count > 0) return devices;
  static_cast<void>(cudaGetLastError());  // else a later call would report it
  devices.count = 0;
  devices.why_none = why_none(status);
  return devices;
}

}  // namespace tutti::cuda
