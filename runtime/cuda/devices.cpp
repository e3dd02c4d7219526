// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/devices.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "runtime/cuda/check.hpp"

namespace tutti::cuda {
namespace {

/// A function of the driver, which no program links: it may not be there. Null if it is not.
void* driver_function(const char* name) noexcept {
  constexpr unsigned kVersion = 12000;  // of the function's form
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (status == cudaSuccess && result == cudaDriverEntryPointSuccess) return found;
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

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

/// Without an answer it is taken for used, as everybody does.
bool has_context(int device) noexcept {
  using GetState = CUresult (*)(CUdevice, unsigned*, int*);
  using GetDevice = CUresult (*)(CUdevice*, int);
  static const auto get_state =
      reinterpret_cast<GetState>(driver_function("cuDevicePrimaryCtxGetState"));
  static const auto get_device = reinterpret_cast<GetDevice>(driver_function("cuDeviceGet"));
  CUdevice handle = 0;
  unsigned flags = 0;
  int is_active = 1;
  if (get_state == nullptr || get_device == nullptr) return true;
  if (get_device(&handle, device) != CUDA_SUCCESS) return true;
  return get_state(handle, &flags, &is_active) != CUDA_SUCCESS || is_active != 0;
}

/// What is current once a thread has chosen is in use: cudaSetDevice itself makes a context.
void choose_used_device() noexcept {
  thread_local bool has_chosen = false;
  if (has_chosen) return;
  int current = 0;
  int count = 0;
  if (cudaGetDevice(&current) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  if (!has_context(current)) {
    int used = 0;
    while (used < count && !has_context(used)) ++used;
    if (used == count) return;
    ignore(cudaSetDevice(used));
  }
  has_chosen = true;
}

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
