// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/devices.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <optional>
#include <string>

#include "runtime/cuda/check.hpp"

namespace tutti::cuda {
namespace {

/// Finds a function of the driver, which no program links, so that it may not be there. Null if it
/// is not.
void* driver_function(const char* name) noexcept {
  constexpr unsigned kVersion = 12000;  // version of CUDA in which the function has this form
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (status == cudaSuccess && result == cudaDriverEntryPointSuccess) return found;
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

std::optional<CUdevice> handle_of(int device) noexcept {
  using GetDevice = CUresult (*)(CUdevice*, int);
  static const auto get_device = reinterpret_cast<GetDevice>(driver_function("cuDeviceGet"));
  CUdevice handle = 0;
  if (get_device == nullptr || get_device(&handle, device) != CUDA_SUCCESS) return std::nullopt;
  return handle;
}

/// The reason why there are no GPUs. Without a driver CUDA says that the driver is too old, which
/// sends people the wrong way.
std::string why_none(cudaError_t status) {
  int driver = 0;
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "there is no GPU here";
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "there is no GPU here, or its driver (libcuda.so.1) is not installed";
  }
  return cudaGetErrorString(status);
}

}  // namespace

/// A device whose driver does not answer is taken for used, as other libraries do.
bool has_context(int device) noexcept {
  using GetState = CUresult (*)(CUdevice, unsigned*, int*);
  static const auto get_state =
      reinterpret_cast<GetState>(driver_function("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int is_active = 1;
  const std::optional<CUdevice> handle = handle_of(device);
  if (get_state == nullptr || !handle) return true;
  return get_state(*handle, &flags, &is_active) != CUDA_SUCCESS || is_active != 0;
}

/// The context is kept until the process ends, as the runtime keeps those that it makes.
void push_context(int device) {
  using Retain = CUresult (*)(CUcontext*, CUdevice);
  using Push = CUresult (*)(CUcontext);
  static const auto retain = reinterpret_cast<Retain>(driver_function("cuDevicePrimaryCtxRetain"));
  static const auto push = reinterpret_cast<Push>(driver_function("cuCtxPushCurrent"));
  const auto require = [&](CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    throw Error(ErrorCode::communication, std::string(call) + " on gpu(" + std::to_string(device) +
                                              "): error " + std::to_string(result) +
                                              " of the CUDA driver");
  };
  const std::optional<CUdevice> handle = handle_of(device);
  if (retain == nullptr || push == nullptr || !handle) {
    throw Error(ErrorCode::communication,
                "the CUDA driver has no cuCtxPushCurrent; it is older "
                "than the library's CUDA");
  }
  CUcontext context = nullptr;
  require(retain(&context, *handle), "cuDevicePrimaryCtxRetain");
  require(push(context), "cuCtxPushCurrent");
}

void pop_context() noexcept {
  using Pop = CUresult (*)(CUcontext*);
  static const auto pop = reinterpret_cast<Pop>(driver_function("cuCtxPopCurrent"));
  CUcontext context = nullptr;
  if (pop != nullptr) static_cast<void>(pop(&context));
}

/// cudaSetDevice would also make the context of the device that was current before, so a device is
/// set only in a thread whose current device the process uses.
OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "cudaGetDevice", device);
  if (before_ == device) return;
  if (!has_context(before_)) {
    push_context(device);
    has_pushed_ = true;
    return;
  }
  check(cudaSetDevice(device), "cudaSetDevice", device);
  has_set_ = true;
}

/// Once the current device is used it stays so: a device that a program sets gets a context by that
/// alone.
OnUsedDevice::OnUsedDevice() noexcept {
  thread_local bool uses_current = false;
  if (uses_current) return;
  int current = 0;
  int count = 0;
  if (cudaGetDevice(&current) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  uses_current = has_context(current);
  if (uses_current) return;
  int used = 0;
  while (used < count && !has_context(used)) ++used;
  if (used == count) return;
  try {
    push_context(used);
    has_pushed_ = true;
  } catch (const Error&) {  // the call that follows reports the driver's error
  }
}

Devices find_devices() {
  Devices devices;
  const cudaError_t status = cudaGetDeviceCount(&devices.count);
  if (status == cudaSuccess && devices.count > 0) return devices;
  static_cast<void>(cudaGetLastError());  // else a later call would report the error
  devices.count = 0;
  devices.why_none = why_none(status);
  return devices;
}

}  // namespace tutti::cuda
