// SPDX-License-Identifier: Apache-2.0
// How a kernel's threads share a tensor: a tile is the work of one warp, in steps of one or more
// vectors of 16 bytes per lane. All of it is ordinary C++ with the tile and the lane as arguments,
// so that a test can run every lane on a CPU.
//
//   tile 0                                              tile 1
//   step 0: |lane 0|lane 1|  ...  |lane 31|  step 1: |lane 0|lane 1| ...
//            16 B each: what the lanes of a warp load together lies together
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "runtime/base/on_any.hpp"

#if defined(__CUDA_ARCH__)
#define TUTTI_UNROLLED _Pragma("unroll")
#define TUTTI_NOT_UNROLLED _Pragma("unroll 1")
#else
#define TUTTI_UNROLLED
#define TUTTI_NOT_UNROLLED
#endif

namespace tutti::gpus::kernels {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kBlockThreads = 256;
inline constexpr std::uint32_t kWarps = kBlockThreads / kLanes;
inline constexpr std::uint32_t kVectorBytes = 16;
/// Vectors that each lane has of a tile, unless a shape says otherwise.
inline constexpr std::uint32_t kVectorsPerTile = 8;

/// The sizes of tiles in kernels of sums and updates, the fastest of those tried on an H200.
struct UsualShape {
  static constexpr std::uint32_t kVectorsPerTile = 4;
  static constexpr std::uint32_t kVectorBytes = kernels::kVectorBytes;  ///< this many or fewer
  static constexpr int kPacks = 0;  ///< vectors that are loaded at once; 0: the body chooses
  /// Blocks per multiprocessor for which registers are limited; 0: the body chooses.
  static constexpr int kBlocksPerSm = 0;
  /// True: loads and stores by __ldcs and __stcs, for data that is not used again.
  static constexpr bool kStreams = false;
  /// True if there are kernels for elements of this type.
  template <class Stored>
  static constexpr bool kIsBuilt = true;
};

/// Elements of a tile whose widest element has so many bytes: 4 KiB of the widest tensor, or as a
/// shape says. Tiles are small enough that a tensor of a few MB is work for the whole GPU.
TUTTI_HOST_DEVICE constexpr std::uint32_t tile_count(std::size_t widest_bytes,
                                                     std::uint32_t vectors = kVectorsPerTile) {
  return kLanes * vectors * kVectorBytes / static_cast<std::uint32_t>(widest_bytes);
}

/// Elements that are loaded and stored with one instruction.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

#if defined(__CUDA_ARCH__)
template <std::size_t kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned int;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};
#endif

/// Throws where a GPU would stop at a misaligned address, for tests that run kernels on a CPU.
inline void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    throw std::logic_error("a vector of " + std::to_string(bytes) + " bytes is not aligned");
  }
}

template <class T, int kCount, bool kStreams = false>
TUTTI_HOST_DEVICE Pack<T, kCount> load_pack(const T* from) {
#if defined(__CUDA_ARCH__)
  using Bits = typename Word<sizeof(T) * kCount>::Type;
  const Bits* const bits = reinterpret_cast<const Bits*>(from);
  return std::bit_cast<Pack<T, kCount>>(kStreams ? __ldcs(bits) : *bits);
#else
  require_aligned(from, sizeof(Pack<T, kCount>));
  Pack<T, kCount> pack;
  std::memcpy(static_cast<void*>(pack.values), static_cast<const void*>(from), sizeof pack);
  return pack;
#endif
}

template <class T, int kCount, bool kStreams = false>
TUTTI_HOST_DEVICE void store_pack(T* to, const Pack<T, kCount>& pack) {
#if defined(__CUDA_ARCH__)
  using Bits = typename Word<sizeof(T) * kCount>::Type;
  if constexpr (kStreams) {
    __stcs(reinterpret_cast<Bits*>(to), std::bit_cast<Bits>(pack));
  } else {
    *reinterpret_cast<Bits*>(to) = std::bit_cast<Bits>(pack);
  }
#else
  require_aligned(to, sizeof pack);
  std::memcpy(static_cast<void*>(to), pack.values, sizeof pack);
#endif
}

/// The elements of one lane in one step: kPacks vectors of kWidth elements, a warp's width apart.
/// Where a tile is short or a tensor not aligned, vectors have one element, and elements from
/// `count` on do not exist.
template <int kTheWidth, int kThePacks, bool kIsChecked, bool kDoesStream = false>
struct Places {
  static constexpr int kWidth = kTheWidth;
  static constexpr int kPacks = kThePacks;
  static constexpr bool kChecked = kIsChecked;
  static constexpr bool kStreams = kDoesStream;
  static constexpr std::uint32_t kStepCount = kLanes * kWidth * kPacks;  ///< for all lanes together

  std::uint32_t first;  ///< index in the tile
  std::uint32_t count;  ///< elements of the tile

  TUTTI_HOST_DEVICE std::uint32_t index(int pack) const {
    return first + static_cast<std::uint32_t>(pack) * kLanes * kWidth;
  }
  TUTTI_HOST_DEVICE bool exists(int pack) const { return !kChecked || index(pack) < count; }
};

/// One lane's elements of one tensor in registers.
template <class T, class Where>
struct Held {
  Pack<T, Where::kWidth> packs[Where::kPacks];
  TUTTI_HOST_DEVICE T& at(int pack, int k) { return packs[pack].values[k]; }
};

/// Calls visit(pack, k) for each element of a Held.
template <class Where, class Visit>
TUTTI_HOST_DEVICE void each_element(Visit&& visit) {
  TUTTI_UNROLLED
  for (int pack = 0; pack < Where::kPacks; ++pack) {
    TUTTI_UNROLLED
    for (int k = 0; k < Where::kWidth; ++k) visit(pack, k);
  }
}

template <class T, class Where>
TUTTI_HOST_DEVICE void load(Held<T, Where>& held, const T* tile, const Where& where) {
  TUTTI_UNROLLED
  for (int pack = 0; pack < Where::kPacks; ++pack) {
    if (where.exists(pack)) {
      held.packs[pack] = load_pack<T, Where::kWidth, Where::kStreams>(tile + where.index(pack));
    } else {
      held.packs[pack] = {};
    }
  }
}

template <class T, class Where>
TUTTI_HOST_DEVICE void store(const Held<T, Where>& held, T* tile, const Where& where) {
  TUTTI_UNROLLED
  for (int pack = 0; pack < Where::kPacks; ++pack) {
    if (where.exists(pack))
      store_pack<T, Where::kWidth, Where::kStreams>(tile + where.index(pack), held.packs[pack]);
  }
}

/// Calls step(places) until the lane has done its part of a tile, which is whole, with kCount
/// elements, or short or unaligned. kWidth elements are a vector of the widest type.
template <int kWidth, int kPacks, std::uint32_t kCount = kLanes* kVectorsPerTile* kWidth,
          bool kStreams = false, class Step>
TUTTI_HOST_DEVICE void for_whole_tile(std::uint32_t lane, Step&& step) {
  using Where = Places<kWidth, kPacks, false, kStreams>;
  static_assert(kCount % Where::kStepCount == 0);
  TUTTI_NOT_UNROLLED
  for (std::uint32_t at = 0; at < kCount; at += Where::kStepCount) {
    step(Where{at + lane * kWidth, kCount});
  }
}

template <int kPacks, class Step>
TUTTI_HOST_DEVICE void for_short_tile(std::uint32_t lane, std::uint32_t count, Step&& step) {
  using Where = Places<1, kPacks, true>;
  TUTTI_NOT_UNROLLED
  for (std::uint32_t at = 0; at < count; at += Where::kStepCount) step(Where{at + lane, count});
}

}  // namespace tutti::gpus::kernels
