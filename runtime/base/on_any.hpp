// SPDX-License-Identifier: Apache-2.0
// The mark of functions that run on a GPU as well, where nvcc compiles them.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_ON_ANY __host__ __device__
#else
#define TUTTI_ON_ANY
#endif
