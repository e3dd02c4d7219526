// SPDX-License-Identifier: Apache-2.0
// The reduction loops for the instructions that every processor of the architecture has: SSE2 or
// NEON.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "collectives/kernels/reduce_loops.hpp"

namespace tutti::collectives {
namespace {

struct Plain {
  template <class Op, class From, class To>
  [[gnu::noinline]] static void cached(const std::byte* const* sources, std::size_t num_sources,
                                       std::byte* const* destinations, std::size_t num_destinations,
                                       std::size_t count) {
    reduce_cached<Op, From, To>(sources, num_sources, destinations, num_destinations, count);
  }

  template <class Op, class From, class To>
  static void streaming(const std::byte* const* sources, std::size_t num_sources,
                        std::byte* const* destinations, std::size_t num_destinations,
                        std::size_t count) {
    reduce_streaming<Plain, Op, From, To>(sources, num_sources, destinations, num_destinations,
                                          count);
  }

  static inline void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__SSE2__)
    for (std::size_t at = 0; at < bytes; at += sizeof(__m128i)) {
      const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), vector);
    }
#else
    std::memcpy(to, from, bytes);
#endif
  }

  static inline void copy_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
};

constexpr Kernels kKernels = make_kernels<Plain>();

}  // namespace

const Kernels& plain_kernels() noexcept { return kKernels; }

}  // namespace tutti::collectives
