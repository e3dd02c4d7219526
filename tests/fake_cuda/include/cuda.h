// SPDX-License-Identifier: Apache-2.0
// What the library uses of the CUDA driver.
#pragma once

using CUdevice = int;
using CUcontext = struct CUctx_st*;
enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201
};
