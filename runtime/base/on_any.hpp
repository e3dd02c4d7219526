// SPDX-License-Identifier: Apache-2.0
// Marks a function that a CPU and a GPU run. Only nvcc compiles it for a GPU.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
