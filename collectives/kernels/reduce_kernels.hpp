// SPDX-License-Identifier: Apache-2.0
// Kernels: the table of compiled reduction loops of one instruction set, see reduce_loops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti::collectives {

inline constexpr std::size_t kMaxSources = 8;  // the most sources whose tree fits into registers
inline constexpr std::size_t kOps = 5;
inline constexpr std::size_t kPairs = 12;

/// Reduces 1 to kMaxSources sources into one destination, or P sources into P destinations if
/// stores_from_registers(P).
using Kernel = void (*)(const std::byte* const* sources, std::size_t num_sources,
                        std::byte* const* destinations, std::size_t num_destinations,
                        std::size_t count);

/// True if kernels write this number of destinations directly. A few ranks that reduce in place are
/// common enough for loops of their own.
constexpr bool stores_from_registers(std::size_t num_destinations) noexcept {
  return num_destinations == 2 || num_destinations == 4;
}

/// Non-temporal stores should write whole lines.
inline constexpr std::size_t kCacheLineBytes = 64;

/// Returns the bytes from `address` to the next start of a line; 0 if it is one.
inline std::size_t bytes_to_line(const std::byte* address) noexcept {
  return -reinterpret_cast<std::uintptr_t>(address) % kCacheLineBytes;
}

struct Kernels {
  Kernel cached[kOps][kPairs];
  /// Reduce 1 to kMaxSources sources into any number of destinations with the same bytes_to_line(),
  /// which must be a whole number of elements. A store fence must follow.
  Kernel streaming[kOps][kPairs];
  /// Copies past the caches; `to` is the start of a line, and `bytes` a multiple of lines. A store
  /// fence must follow.
  void (*stream_lines)(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Copies through the caches; `to` is the start of a line, and `bytes` a multiple of lines.
  void (*copy_lines)(std::byte* to, const std::byte* from, std::size_t bytes);
};

/// Returns the second index of the table: eight types to themselves, followed by four conversions.
constexpr std::size_t pair_index(DType from, DType to) noexcept {
  if (from == to) return static_cast<std::size_t>(from);
  return from == DType::float32 ? 10 + static_cast<std::size_t>(to)
                                : 8 + static_cast<std::size_t>(from);
}
static_assert(pair_index(DType::bfloat16, DType::float32) == 9);
static_assert(pair_index(DType::float32, DType::bfloat16) == 11);

const Kernels& plain_kernels() noexcept;
#if defined(__x86_64__)
const Kernels& avx2_kernels() noexcept;
const Kernels& avx512_kernels() noexcept;
#endif

}  // namespace tutti::collectives
