// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime, whose errors become exceptions.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "tutti/error.hpp"

namespace tutti::cuda {

/// True if CUDA says, in one of several ways, that the program has no kernels for this GPU or
/// driver.
inline bool is_of_other_gpus(cudaError_t status) {
  return status == cudaErrorInvalidDeviceFunction || status == cudaErrorInvalidKernelImage ||
         status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidPtx ||
         status == cudaErrorUnsupportedPtxVersion;
}

/// Errors  communication (out_of_memory), with the call, the device and CUDA's own words. Later
///         calls of the process do not meet the error again, unless CUDA does not recover from it.
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

/// Ignores the error of a call that gives something back, which helps nobody: later calls of the
/// process do not meet it.
inline void ignore(cudaError_t status) noexcept {
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
}

/// True if this process has used a device. Making it current by cudaSetDevice would make its
/// context, which takes half a gigabyte of its memory, and which a GPU in exclusive mode refuses to
/// all but one process.
bool has_context(int device) noexcept;

/// Makes a device current for this thread until pop_context(), which leaves the thread's choice of
/// a device as it was, also where the thread has made none. Makes the device's context if need be.
/// Errors: communication.
void push_context(int device);
void pop_context() noexcept;

/// Makes a device the calling thread's current one for as long as the object lives, and then the
/// one before.
class OnDevice {
 public:
  explicit OnDevice(int device);
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (has_pushed_) pop_context();
    if (has_set_) ignore(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool has_set_ = false;
  bool has_pushed_ = false;
};

/// Surrounds calls that name no device. They would make the context of the thread's current device,
/// which is gpu(0) in a thread that has never chosen. Where the process does not use that device,
/// one that it uses is current meanwhile.
class OnUsedDevice {
 public:
  OnUsedDevice() noexcept;
  OnUsedDevice(const OnUsedDevice&) = delete;
  OnUsedDevice& operator=(const OnUsedDevice&) = delete;
  ~OnUsedDevice() {
    if (has_pushed_) pop_context();
  }

 private:
  bool has_pushed_ = false;
};

/// Surrounds calls that CUDA forbids while another thread captures a stream into a graph, in the
/// mode that captures have unless they ask for another: the calls would end that capture. None of
/// the library's calls has to do with a capture, so they are made in the relaxed mode.
class BesideCaptures {
 public:
  BesideCaptures() noexcept { ignore(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures() { ignore(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tutti::cuda
