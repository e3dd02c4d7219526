// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime, whose errors become exceptions.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "tutti/error.hpp"

namespace tutti::cuda {

/// Errors  communication (out_of_memory), with the call, the device and CUDA's own words. Other
///         calls of the process do not meet it again, unless CUDA does not recover from it.
inline void check(cudaError_t status, const char* call, int device) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const bool no_memory = status == cudaErrorMemoryAllocation;
  throw Error(no_memory ? ErrorCode::out_of_memory : ErrorCode::communication,
              std::string(call) + " on gpu(" + std::to_string(device) +
                  "): " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

/// Makes a device the calling thread's current one for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : device_(device) {
    check(cudaGetDevice(&before_), "cudaGetDevice", device);
    if (before_ != device) check(cudaSetDevice(device), "cudaSetDevice", device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (before_ != device_) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int device_;
  int before_ = 0;
};

}  // namespace tutti::cuda
