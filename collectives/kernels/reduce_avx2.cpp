// SPDX-License-Identifier: Apache-2.0
// The reduction loops for AVX2: vectors of 32 bytes.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collectives/kernels/reduce_loops.hpp"

namespace tutti::collectives {
namespace {

struct Avx2 {
  template <class Op, class From, class To>
  [[gnu::target("avx2"), gnu::noinline]] static void cached(const std::byte* const* sources,
                                                            std::size_t num_sources,
                                                            std::byte* const* destinations,
                                                            std::size_t num_destinations,
                                                            std::size_t count) {
    reduce_cached<Op, From, To>(sources, num_sources, destinations, num_destinations, count);
  }

  template <class Op, class From, class To>
  [[gnu::target("avx2")]] static void streaming(const std::byte* const* sources,
                                                std::size_t num_sources,
                                                std::byte* const* destinations,
                                                std::size_t num_destinations, std::size_t count) {
    reduce_streaming<Avx2, Op, From, To>(sources, num_sources, destinations, num_destinations,
                                         count);
  }

  [[gnu::target("avx2")]] static inline void stream_lines(std::byte* to, const std::byte* from,
                                                          std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(__m256i)) {
      const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), vector);
    }
  }

  [[gnu::target("avx2")]] static inline void copy_lines(std::byte* to, const std::byte* from,
                                                        std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(__m256i)) {
      const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + at), vector);
    }
  }
};

constexpr Kernels kKernels = make_kernels<Avx2>();

}  // namespace

const Kernels& avx2_kernels() noexcept { return kKernels; }

}  // namespace tutti::collectives

#endif
