// SPDX-License-Identifier: Apache-2.0
// The kernels, for a compiler of C++.
#include "runtime/cuda/kernels.cu"
