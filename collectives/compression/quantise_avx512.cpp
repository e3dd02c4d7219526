// SPDX-License-Identifier: Apache-2.0
// The loops of gradient compression for AVX-512.
#if defined(__x86_64__)
#include "collectives/compression/quantise_loops.hpp"

TUTTI_DEFINE_QUANTISE(avx512_quantise, [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]])
#endif
