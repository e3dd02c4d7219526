// SPDX-License-Identifier: Apache-2.0
// The variants of sums and updates that kernel-benchmark --variants measures beside the library's
// own kernels: the same bodies, cut, loaded and launched otherwise.
#pragma once

#include <type_traits>

#include "tutti/dtype.hpp"

#include "runtime/gpu/kernels/lanes.hpp"

namespace test::variants {

/// What a variant need not say. float16 is left out, since it costs what bfloat16 does.
struct Base : tutti::gpus::kernels::UsualShape {
  static constexpr bool kIsPersistent = false;  ///< as many blocks as fit, from tile to tile
  static constexpr bool kIsBulk = false;        ///< tiles come by cp.async.bulk: see bulk.hpp
  /// Whether a norm's addends are added in the library's order; else rules with norms are left out.
  static constexpr bool kKeepsNorms = true;
  template <class Stored>
  static constexpr bool kIsBuilt = !std::is_same_v<Stored, tutti::Float16>;
};

struct SmallTiles : Base {
  static constexpr const char* kName = "tiles of 1 KiB";
  static constexpr std::uint32_t kVectorsPerTile = 2;
  static constexpr int kPacks = 1;
  static constexpr bool kKeepsNorms = false;
};

struct MediumTiles : Base {
  static constexpr const char* kName = "tiles of 4 KiB";
  static constexpr std::uint32_t kVectorsPerTile = 8;
  static constexpr bool kKeepsNorms = false;
};

struct LargeTiles : Base {
  static constexpr const char* kName = "tiles of 16 KiB";
  static constexpr std::uint32_t kVectorsPerTile = 32;
  static constexpr bool kKeepsNorms = false;
};

struct Streaming : Base {
  static constexpr const char* kName = "streaming hints";
  static constexpr bool kStreams = true;
};

struct NarrowVectors : Base {
  static constexpr const char* kName = "vectors of 8 B";
  static constexpr std::uint32_t kVectorBytes = 8;
  static constexpr bool kKeepsNorms = false;
};

struct OnePack : Base {
  static constexpr const char* kName = "1 vector at once";
  static constexpr int kPacks = 1;
};

struct TwoPacks : Base {
  static constexpr const char* kName = "2 vectors at once";
  static constexpr int kPacks = 2;
  static constexpr int kBlocksPerSm = 2;
};

struct FourPacks : Base {
  static constexpr const char* kName = "4 vectors at once";
  static constexpr int kPacks = 4;
  static constexpr int kBlocksPerSm = 2;
};

struct FewBlocks : Base {
  static constexpr const char* kName = "2 blocks an SM";
  static constexpr int kBlocksPerSm = 2;
};

/// With five, adamw's registers would not be enough.
struct MoreBlocks : Base {
  static constexpr const char* kName = "3 blocks an SM";
  static constexpr int kBlocksPerSm = 3;
};

/// With four blocks, what a loop over tiles keeps would not stay in registers.
struct Persistent : Base {
  static constexpr const char* kName = "persistent";
  static constexpr int kBlocksPerSm = 3;
  static constexpr bool kIsPersistent = true;
};

struct PersistentLarge : LargeTiles {
  static constexpr const char* kName = "persistent, 16 KiB";
  static constexpr int kBlocksPerSm = 3;
  static constexpr bool kIsPersistent = true;
};

struct Bulk : Base {
  static constexpr const char* kName = "bulk copies";
  static constexpr std::uint32_t kVectorsPerTile = 4;
  static constexpr int kBlocksPerSm = 1;
  static constexpr bool kIsBulk = true;
  static constexpr bool kKeepsNorms = false;
};

template <class... Shape>
struct Shapes {};

/// nvcc compiles one list in one file.
using LoadShapes = Shapes<SmallTiles, MediumTiles, LargeTiles, Streaming, NarrowVectors>;
using LaunchShapes =
    Shapes<OnePack, TwoPacks, FourPacks, FewBlocks, MoreBlocks, Persistent, PersistentLarge, Bulk>;

}  // namespace test::variants
