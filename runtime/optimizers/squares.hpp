// SPDX-License-Identifier: Apache-2.0
// The sum of the squares of a tensor's elements, for the norm over all gradients of a push. The
// order of the additions depends on the element's index and the tensor's dtype alone, and a GPU
// (gpu/kernels/squares_body.hpp) follows it, too: all processors get the same bits, however many
// threads add.
//
//   tensor    tiles of 4 KiB, of 32 * W columns, where W elements are 16 bytes
//   column    its up to 8 elements from first to last, squared in double
//   tile      the W columns of lane l, which lie side by side, in pairs; then the 32 lanes in pairs
//   tensor    tiles t, t + 256, ... are added to sum t; then the sums of each 32 in pairs; then
//             these
//
// "In pairs" adds numbers that lie half of them apart, then a quarter, and so on.
#pragma once

#include <cstddef>
#include <span>

#include "tutti/dtype.hpp"

namespace tutti::optimizer {

inline constexpr std::size_t kSquaresTileBytes = 4096;

/// The number of tiles of a tensor of floats with `count` elements.
constexpr std::size_t squares_tiles(DType dtype, std::size_t count) {
  const std::size_t each = kSquaresTileBytes / size_of(dtype);
  return (count + each - 1) / each;
}

/// Adds the squares of some tiles, of which the last may be short: `tiles` gets one sum for each. A
/// sum is not finite if an element is not, or is a float64 beyond 1e154.
void add_squares(DType dtype, const std::byte* elements, std::size_t count,
                 std::span<double> tiles);

/// The sum over all tiles of a tensor.
[[nodiscard]] double total_squares(std::span<const double> tiles);

}  // namespace tutti::optimizer
