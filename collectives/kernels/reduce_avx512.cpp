// SPDX-License-Identifier: Apache-2.0
// The reduction loops for AVX-512: vectors of 64 bytes.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collectives/kernels/reduce_loops.hpp"

namespace tutti::collectives {
namespace {

struct Avx512 {
  template <class Op, class From, class To>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void cached(
      const std::byte* const* sources, std::size_t num_sources, std::byte* const* destinations,
      std::size_t num_destinations, std::size_t count) {
    reduce_cached<Op, From, To>(sources, num_sources, destinations, num_destinations, count);
  }

  template <class Op, class From, class To>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void streaming(
      const std::byte* const* sources, std::size_t num_sources, std::byte* const* destinations,
      std::size_t num_destinations, std::size_t count) {
    reduce_streaming<Avx512, Op, From, To>(sources, num_sources, destinations, num_destinations,
                                           count);
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static inline void stream_lines(
      std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(__m512i)) {
      const __m512i vector = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from + at));
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), vector);
    }
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static inline void copy_lines(
      std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(__m512i)) {
      const __m512i vector = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from + at));
      _mm512_store_si512(reinterpret_cast<__m512i*>(to + at), vector);
    }
  }
};

constexpr Kernels kKernels = make_kernels<Avx512>();

}  // namespace

const Kernels& avx512_kernels() noexcept { return kKernels; }

}  // namespace tutti::collectives

#endif
