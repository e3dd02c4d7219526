// SPDX-License-Identifier: Apache-2.0
// The loops of gradient compression for AVX2.
#if defined(__x86_64__)
#include "collectives/compression/quantise_loops.hpp"

TUTTI_DEFINE_QUANTISE(avx2_quantise, [[gnu::target("avx2")]])
#endif
