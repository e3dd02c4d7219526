// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/devices.hpp"

#include <cuda_runtime_api.h>

namespace tutti::cuda {

Devices find_devices() {
  Devices devices;
  const cudaError_t status = cudaGetDeviceCount(&devices.count);
  if (status == cudaSuccess && devices.count > 0) return devices;
  static_cast<void>(cudaGetLastError());  // else a later call would report it
  devices.count = 0;
  devices.why_none = status == cudaSuccess ? "there is none" : cudaGetErrorString(status);
  return devices;
}

}  // namespace tutti::cuda
