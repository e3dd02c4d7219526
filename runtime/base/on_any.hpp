// SPDX-License-Identifier: Apache-2.0
// TUTTI_HOST_DEVICE marks a function that runs on CPUs and GPUs. Only nvcc compiles it for GPUs.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
