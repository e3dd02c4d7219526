// SPDX-License-Identifier: Apache-2.0
// reduce(): the only arithmetic of the collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti::collectives {

/// How destinations are written. `streaming` writes past the caches (non-temporal stores), which is
/// faster if the destinations are larger than the last-level cache. A signal to a reader must
/// follow a streaming_fence(). One fence is enough for any number of reductions; it takes as long
/// as several of them.
enum class WritePolicy : std::uint8_t { cached, streaming };

/// Element types and operation of one reduction. `from` and `to` are equal, or one is a 16-bit
/// floating-point type and the other float32.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  DType from = DType::float32;
  DType to = DType::float32;
};

/// destinations[d][i] = sources[0][i] (op) sources[1][i] (op) ... for all d and i < count, in the
/// canonical order: a balanced tree whose left subtree holds the largest power of two below the
/// number of sources, and whose left operand is always the lower source. One source is a copy.
/// 16-bit floating-point types are accumulated in float32 and rounded once, at the end; integers
/// wrap. An average of floating-point sources is their sum, divided by their number before it is
/// rounded. A NaN that is computed is always the same quiet NaN, whatever NaNs went in; min and max
/// give NaN if an operand is NaN, and order -0 below +0.
///
/// A destination may be one of the sources (the same address) if both have the same element size,
/// but may not overlap one otherwise.
/// The bits do not depend on the vector width, on count or on how a range is split.
///
/// Order  local. Never throws. At least one source; destinations may be empty.
void reduce(const Reduction& reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, std::size_t count, WritePolicy stores);

/// Returns the reduction for intermediate sums: an average is summed, and divided once at the end.
constexpr ReduceOp combining(ReduceOp op) noexcept {
  return op == ReduceOp::avg ? ReduceOp::sum : op;
}

/// Divides floating-point elements, in place, as reduce() does for an average. Local.
void divide(DType dtype, std::byte* elements, std::size_t count, std::size_t divisor) noexcept;

/// Orders all streaming stores of this thread before its later stores.
void streaming_fence() noexcept;

/// Returns the vector instructions that reduce() uses on this machine: "AVX-512", "AVX2", "NEON" or
/// "plain".
const char* vector_instructions() noexcept;

enum class Isa : std::uint8_t { plain, avx2, avx512 };
/// True if this machine has the instruction set.
bool has_isa(Isa isa) noexcept;
/// For tests: reduce() with one instruction set. Returns false if this machine does not have it.
bool reduce_with(Isa isa, const Reduction& reduction, std::span<const std::byte* const> sources,
                 std::span<std::byte* const> destinations, std::size_t count, WritePolicy stores);

/// For tests: copies by the loop of one instruction set, whatever processor this is. Returns false
/// if this machine does not have it.
bool copy_with(Isa isa, std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace tutti::collectives
