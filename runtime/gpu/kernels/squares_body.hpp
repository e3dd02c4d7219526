// SPDX-License-Identifier: Apache-2.0
// The sum of the squares of every row's sum, in the order of runtime/optimizers/squares.hpp, whose
// tiles, columns, lanes and blocks are those of the kernels here.
//
// Bytes per element of N inputs: reads N elements, and writes nothing but 8 bytes a tile.
#pragma once

#include "runtime/gpu/kernels/sum_body.hpp"
#include "runtime/optimizers/squares.hpp"

namespace tutti::gpus::kernels {

template <class T>
struct SquaresBody {
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kWidth = kVectorBytes / sizeof(T);
  static constexpr std::uint32_t kColumns = kLanes * kWidth;
  static_assert(tile_count(sizeof(T)) * sizeof(T) == optimizer::kSquaresTileBytes);

  TableView table;
  double* of_tiles;

  TUTTI_HOST_DEVICE double operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = table.work(tile, sizeof(T));
    const ManyInputs<T, 2> many{work};
    double columns[kWidth] = {};
    if (!work.whole) {
      short_tile(many, work, lane, columns);
    } else if (work.row->num_inputs == 1) {
      const Inputs<T, 1> one(work);
      for_whole_tile<kWidth, 2>(lane, [&](const auto& where) { add(one, where, columns); });
    } else {
      for_whole_tile<kWidth, 1>(lane, [&](const auto& where) { add(many, where, columns); });
    }
    TUTTI_UNROLLED
    for (int half = kWidth / 2; half > 0; half /= 2) {
      TUTTI_UNROLLED
      for (int k = 0; k < half; ++k) columns[k] += columns[k + half];
    }
    return columns[0];
  }

  TUTTI_HOST_DEVICE void store_sum(std::uint32_t tile, double squares) const {
    of_tiles[tile] = squares;
  }

 private:
  template <class Sources, class Where>
  TUTTI_HOST_DEVICE static void add(const Sources& inputs, const Where& where, double* columns) {
    Held<T, Where> sums{};
    inputs.load_sum(sums, where);
    each_element<Where>([&](int pack, int k) {
      const double value = widen(sums.at(pack, k));
      columns[k] += value * value;
    });
  }

  /// Adds the elements of a short tile one by one; elements that do not exist are read as 0.
  template <class Sources>
  TUTTI_HOST_DEVICE static void short_tile(const Sources& inputs, const TileWork& work,
                                           std::uint32_t lane, double* columns) {
    using Where = Places<1, 1, true>;
    TUTTI_NOT_UNROLLED
    for (std::uint32_t at = lane * kWidth; at < work.count; at += kColumns) {
      TUTTI_UNROLLED
      for (int k = 0; k < kWidth; ++k) {
        add(inputs, Where{at + static_cast<std::uint32_t>(k), work.count}, columns + k);
      }
    }
  }
};

/// Adds the tiles of each row, and stores the row's total at its place in the list that was given.
struct TotalSquaresBody {
  static constexpr int kBlocksPerSm = 4;

  const DeviceRow* rows;
  std::uint32_t first_row;
  const std::uint32_t* row_of_place;
  const double* of_tiles;  ///< tiles of all rows
  double* of_rows;
  std::uint32_t size;  ///< bytes of an element

  TUTTI_HOST_DEVICE double operator()(std::uint32_t row, std::uint32_t thread) const {
    const DeviceRow& own = rows[first_row + row];
    const std::uint32_t most = tile_count(size);
    const auto num_tiles = static_cast<std::uint32_t>((own.count + most - 1) / most);
    double sum = 0;
    for (std::uint32_t i = thread; i < num_tiles; i += kBlockThreads) {
      sum += of_tiles[own.first_tile + i];
    }
    return sum;
  }

  TUTTI_HOST_DEVICE void store_sum(std::uint32_t row, double sum) const {
    of_rows[row_of_place[first_row + row]] = sum;
  }
};

}  // namespace tutti::gpus::kernels
