// SPDX-License-Identifier: Apache-2.0
#include "runtime/optimizers/squares.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "runtime/base/elements.hpp"

namespace tutti::optimizer {

namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kVectorBytes = 16;
constexpr std::size_t kThreads = 256;

/// Adds `count` numbers in pairs, in place, into the first; count is a power of two.
inline void add_in_pairs(double* numbers, std::size_t count) {
  for (std::size_t half = count / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) numbers[i] += numbers[i + half];
  }
}

template <class T>
[[gnu::always_inline]] inline double tile_squares(const T* elements, std::size_t count) {
  constexpr std::size_t kWidth = kVectorBytes / sizeof(T);
  constexpr std::size_t kColumns = kLanes * kWidth;
  std::array<double, kColumns> sums{};
  for (std::size_t begin = 0; begin < count; begin += kColumns) {
    const std::size_t now = std::min(kColumns, count - begin);
    for (std::size_t i = 0; i < now; ++i) {
      double value = 0;
      if constexpr (elements::is_half<T>) {
        value = elements::widened(elements[begin + i]);
      } else {
        value = elements[begin + i];
      }
      sums[i] += value * value;
    }
  }
  std::array<double, kLanes> lanes{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    add_in_pairs(sums.data() + lane * kWidth, kWidth);
    lanes[lane] = sums[lane * kWidth];
  }
  add_in_pairs(lanes.data(), kLanes);
  return lanes[0];
}

template <class T>
[[gnu::always_inline]] inline void all_tiles(const T* elements, std::size_t count,
                                             std::span<double> tiles) {
  constexpr std::size_t kEach = kSquaresTileBytes / sizeof(T);
  for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
    const std::size_t begin = tile * kEach;
    tiles[tile] = tile_squares(elements + begin, std::min(kEach, count - begin));
  }
}

template <class T>
[[gnu::flatten, gnu::noinline]] void all_tiles_plain(const T* elements, std::size_t count,
                                                     std::span<double> tiles) {
  all_tiles(elements, count, tiles);
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2"), gnu::flatten, gnu::noinline]] void all_tiles_avx2(const T* elements,
                                                                         std::size_t count,
                                                                         std::span<double> tiles) {
  all_tiles(elements, count, tiles);
}
#endif

}  // namespace

void add_squares(DType dtype, const std::byte* elements, std::size_t count,
                 std::span<double> tiles) {
  visit(dtype, [&]<class T>(T) {
    if constexpr (!std::is_integral_v<T>) {
      const auto* first = reinterpret_cast<const T*>(elements);
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx2")) return all_tiles_avx2(first, count, tiles);
#endif
      all_tiles_plain(first, count, tiles);
    }
  });
}

double total_squares(std::span<const double> tiles) {
  std::array<double, kThreads> sums{};
  for (std::size_t begin = 0; begin < tiles.size(); begin += kThreads) {
    const std::size_t now = std::min(kThreads, tiles.size() - begin);
    for (std::size_t i = 0; i < now; ++i) sums[i] += tiles[begin + i];
  }
  std::array<double, kThreads / kLanes> warps{};
  for (std::size_t warp = 0; warp < warps.size(); ++warp) {
    add_in_pairs(sums.data() + warp * kLanes, kLanes);
    warps[warp] = sums[warp * kLanes];
  }
  add_in_pairs(warps.data(), warps.size());
  return warps[0];
}

}  // namespace tutti::optimizer
