// SPDX-License-Identifier: Apache-2.0
// The rows and tiles of a launch in the device's memory.
#pragma once

#include "runtime/gpu/kernels.hpp"
#include "runtime/gpu/kernels/lanes.hpp"

namespace tutti::gpus::kernels {

/// A TensorRow as kernels read it, but for its inputs, which have an array of their own: they
/// change in every step of a program that makes new gradients.
struct DeviceRow {
  std::byte* output;  ///< the sum's target, or the weight
  std::byte* exact;   ///< the weight that formulas compute with: the float32 copy of a 16-bit one
  std::byte* states[Optimizer::kMostStates];
  std::uint64_t count;
  std::uint32_t first_tile;
  std::uint8_t num_inputs;
  bool in_tree;              ///< inputs are summed in the canonical order
  std::uint8_t input_bytes;  ///< bytes of an input in one vector of a tile
  bool aligned;              ///< output and states are aligned to such vectors
};

struct Tile {
  std::uint32_t row;
  std::uint32_t index;  ///< number of the tile in its row
};

/// The work of a lane: part of one row.
struct TileWork {
  const DeviceRow* row;
  const std::byte* const* inputs;  ///< inputs of the row
  std::uint64_t begin;             ///< first element of the tile in its tensor
  std::uint32_t count;
  bool whole;  ///< the tile is full, and all tensors are aligned
};

struct TableView {
  const DeviceRow* rows;
  const Tile* tiles;
  const std::byte* const* inputs;  ///< num_inputs_of_row for each row
  std::uint32_t num_inputs_of_row;

  /// The work for one tile. `widest_bytes` and kVectors are those that the table was cut with.
  template <std::uint32_t kVectors = kVectorsPerTile>
  TUTTI_HOST_DEVICE TileWork work(std::uint32_t tile, std::size_t widest_bytes) const {
    const Tile place = tiles[tile];
    const DeviceRow& row = rows[place.row];
    const std::uint32_t most = tile_count(widest_bytes, kVectors);
    const std::uint64_t begin = std::uint64_t{place.index} * most;
    const std::uint64_t left = row.count - begin;
    const std::uint32_t count = left < most ? static_cast<std::uint32_t>(left) : most;
    const std::byte* const* const own = inputs + std::size_t{place.row} * num_inputs_of_row;
    return {&row, own, begin, count, count == most && row.aligned && are_aligned(own, row)};
  }

 private:
  TUTTI_HOST_DEVICE static bool are_aligned(const std::byte* const* inputs, const DeviceRow& row) {
    std::uintptr_t all = 0;
    for (int i = 0; i < row.num_inputs; ++i) all |= reinterpret_cast<std::uintptr_t>(inputs[i]);
    return (all & (row.input_bytes - 1u)) == 0;
  }
};

}  // namespace tutti::gpus::kernels
