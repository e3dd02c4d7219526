// SPDX-License-Identifier: Apache-2.0
// The mark of functions that run on a GPU as well, where nvcc compiles them.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
