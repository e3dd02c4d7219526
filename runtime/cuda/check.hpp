// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime, whose errors become exceptions.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "tutti/error.hpp"

namespace tutti::cuda {

/// What CUDA says, in one of several ways, where the program has no kernels for this GPU or driver.
inline bool is_of_other_gpus(cudaError_t status) {
  return status == cudaErrorInvalidDeviceFunction || status == cudaErrorInvalidKernelImage ||
         status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidPtx ||
         status == cudaErrorUnsupportedPtxVersion;
}

/// Errors  communication (out_of_memory), with the call, the device and CUDA's own words. Other
///         calls of the process do not meet it again, unless CUDA does not recover from it.
inline void check(cudaError_t status, const char* call, int device) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const bool no_memory = status == cudaErrorMemoryAllocation;
  throw Error(no_memory ? ErrorCode::out_of_memory : ErrorCode::communication,
              std::string(call) + " on gpu(" + std::to_string(device) +
                  "): " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status) +
                  (is_of_other_gpus(status)
                       ? "; the library was built for other GPUs or a newer driver: build it here "
                         "with -DCMAKE_CUDA_ARCHITECTURES=native"
                       : ""));
}

/// For calls that give something back, whose errors help nobody: other calls of the process do not
/// meet them.
inline void ignore(cudaError_t status) noexcept {
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
}

/// Whether this process has used a device. Making it current would make its context, which takes
/// half a gigabyte of it, and which a GPU in exclusive mode refuses to all but one process.
bool has_context(int device) noexcept;

/// Before calls that name no device: they make the context of the thread's current one, which is
/// gpu(0) in a thread that has never chosen. If the process does not use that, one that it uses
/// becomes the current one.
void choose_used_device() noexcept;

/// Makes a device the calling thread's current one for as long as it lives, and then the one before
/// if the process uses that: a thread that has never chosen one has gpu(0), used or not.
class OnDevice {
 public:
  explicit OnDevice(int device) : device_(device) {
    check(cudaGetDevice(&before_), "cudaGetDevice", device);
    if (before_ != device) check(cudaSetDevice(device), "cudaSetDevice", device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (before_ != device_ && has_context(before_)) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int device_;
  int before_ = 0;
};

}  // namespace tutti::cuda
