// SPDX-License-Identifier: Apache-2.0
// The table of a launch in the device's memory.
#pragma once

#include "runtime/gpu/kernels.hpp"
#include "runtime/gpu/kernels/lanes.hpp"

namespace tutti::gpus::kernels {

/// A TensorRow as kernels read it.
struct DeviceRow {
  const std::byte* inputs[TensorRow::kMostInputs];
  std::byte* output;  ///< or the weight
  std::byte* exact;   ///< the weight that is computed with: the float32 copy of a 16-bit one
  std::byte* states[Optimizer::kMostStates];
  std::uint64_t count;
  std::uint32_t first_tile;
  std::uint16_t num_inputs;
  bool aligned;  ///< all tensors, to the vectors that tiles are read in
};

struct Tile {
  std::uint32_t row;
  std::uint32_t index;  ///< in its row
};

/// What a lane has to do: part of one row.
struct Work {
  const DeviceRow* row;
  std::uint64_t begin;  ///< where the tile starts in its tensor
  std::uint32_t count;
  bool whole;  ///< full and aligned
};

struct TableView {
  const DeviceRow* rows;
  const Tile* tiles;

  /// `widest_bytes` as the table was cut with.
  TUTTI_HOST_DEVICE Work work(std::uint32_t tile, std::size_t widest_bytes) const {
    const Tile place = tiles[tile];
    const DeviceRow& row = rows[place.row];
    const std::uint32_t most = tile_count(widest_bytes);
    const std::uint64_t begin = std::uint64_t{place.index} * most;
    const std::uint64_t left = row.count - begin;
    const std::uint32_t count = left < most ? static_cast<std::uint32_t>(left) : most;
    return {&row, begin, count, count == most && row.aligned};
  }
};

}  // namespace tutti::gpus::kernels
