// SPDX-License-Identifier: Apache-2.0
// The kernels of sums:
//
//   output = input 0 + input 1 + ...       from left to right, or along the canonical tree
//
// Bytes per element of N inputs: N + 1 elements. With less than 48 KB in flight per multiprocessor
// an H200's memory waits; one vector of one input per thread is 32 KB at most, so few inputs load
// several vectors before they add.
#pragma once

#include "runtime/gpu/kernels/halves.hpp"
#include "runtime/gpu/kernels/rows.hpp"

namespace tutti::gpus::kernels {

/// Adds an input to the sums. Sums start from their first input, not from +0, which would make +0
/// of -0.
template <class T, class Where>
TUTTI_HOST_DEVICE void add(Held<SummedIn<T>, Where>& sums, Held<T, Where>& input, bool is_first) {
  each_element<Where>([&](int pack, int k) {
    const SummedIn<T> value = widen(input.at(pack, k));
    sums.at(pack, k) = is_first ? value : static_cast<SummedIn<T>>(sums.at(pack, k) + value);
  });
}

/// Computes left = left + right.
template <class T, class Where>
TUTTI_HOST_DEVICE void add_right(Held<T, Where>& left, Held<T, Where>& right) {
  each_element<Where>([&](int pack, int k) {
    left.at(pack, k) = static_cast<T>(left.at(pack, k) + right.at(pack, k));
  });
}

/// The canonical order of up to eight inputs, of which each pair has been added:
///
///   inputs   0+1   2+3   4+5   6+7
///   pairs      +---+       +---+      two: the left neighbour of the next pair
///   fours        +-----------+        four: the left neighbour of later pairs, or the sum
template <class T, class Where>
struct PairTree {
  Held<T, Where> two;
  Held<T, Where> four;

  /// Adds the pair of inputs first and first + 1, of which the second may not exist.
  TUTTI_HOST_DEVICE void add(Held<T, Where>& pair, int first) {
    if ((first & 2) == 0) {
      two = pair;
      return;
    }
    add_right(two, pair);
    if ((first & 4) == 0) {
      four = two;
    } else {
      add_right(four, two);
    }
  }
  TUTTI_HOST_DEVICE T sum(int num_inputs, int pack, int k) {
    const T four_and_two = static_cast<T>(four.at(pack, k) + two.at(pack, k));
    return num_inputs <= 2                      ? two.at(pack, k)
           : num_inputs == 5 || num_inputs == 6 ? four_and_two
                                                : four.at(pack, k);
  }
};
static_assert(TensorRow::kMostInputs == 8);

/// Sums a row's inputs at the same places, kGroup inputs at a time, which are all loaded before the
/// first is added. From left to right, or along the tree if the row says so, for which kGroup is 2.
/// `held` gets the sum as it is stored.
template <int kGroup, class T, class Where>
TUTTI_HOST_DEVICE void load_sum(Held<T, Where>& held, const TileWork& work, const Where& where) {
  const int num_inputs = work.row->num_inputs;
  const bool in_tree = kGroup == 2 && work.row->in_tree;
  Held<SummedIn<T>, Where> sums{};
  [[maybe_unused]] PairTree<SummedIn<T>, Where> tree{};
  TUTTI_NOT_UNROLLED
  for (int first = 0; first < num_inputs; first += kGroup) {
    Held<T, Where> inputs[kGroup];
    TUTTI_UNROLLED
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= num_inputs) break;
      load(inputs[i], reinterpret_cast<const T*>(work.inputs[first + i]) + work.begin, where);
    }
    TUTTI_UNROLLED
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= num_inputs) break;
      add(sums, inputs[i], first + i == 0 || (in_tree && i == 0));
    }
    if constexpr (kGroup == 2) {
      if (in_tree) tree.add(sums, first);
    }
  }
  if constexpr (kGroup == 2) {
    if (in_tree) {
      each_element<Where>(
          [&](int pack, int k) { sums.at(pack, k) = tree.sum(num_inputs, pack, k); });
    }
  }
  each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(sums.at(pack, k)); });
}

/// A tile's parts of the first kInputs inputs of a row. Pointers that are not copied here would be
/// read again after every store, which might have changed them as far as the compiler knows.
template <class T, int kInputs>
struct Inputs {
  static constexpr bool kIsLoop = false;
  const T* tiles[kInputs];

  TUTTI_HOST_DEVICE explicit Inputs(const TileWork& work) {
    TUTTI_UNROLLED
    for (int i = 0; i < kInputs; ++i) {
      tiles[i] = reinterpret_cast<const T*>(work.inputs[i]) + work.begin;
    }
  }

  /// Sums like the function load_sum(). One input is copied as it is.
  template <class Where>
  TUTTI_HOST_DEVICE void load_sum(Held<T, Where>& held, const Where& where) const {
    if constexpr (kInputs == 1) {
      load(held, tiles[0], where);
    } else {
      Held<T, Where> inputs[kInputs];
      TUTTI_UNROLLED
      for (int i = 0; i < kInputs; ++i) load(inputs[i], tiles[i], where);
      Held<SummedIn<T>, Where> sums{};
      TUTTI_UNROLLED
      for (int i = 0; i < kInputs; ++i) add(sums, inputs[i], i == 0);
      each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(sums.at(pack, k)); });
    }
  }
};

/// All inputs of a row, kGroup at a time.
template <class T, int kGroup>
struct ManyInputs {
  /// Inputs are loaded in a loop, in which tensors that were loaded before it take registers.
  static constexpr bool kIsLoop = true;
  const TileWork& work;

  template <class Where>
  TUTTI_HOST_DEVICE void load_sum(Held<T, Where>& held, const Where& where) const {
    kernels::load_sum<kGroup>(held, work, where);
  }
};

/// Stores the sums of a tile, kUsualPacks vectors at once unless the shape says how many.
template <class T, class Shape, int kUsualPacks, class Sources>
TUTTI_HOST_DEVICE void sum_tile(const TileWork& work, const Sources& inputs, std::uint32_t lane) {
  T* const output = reinterpret_cast<T*>(work.row->output) + work.begin;
  const auto step = [&]<class Where>(const Where& where) {
    Held<T, Where> sums;
    inputs.load_sum(sums, where);
    store(sums, output, where);
  };
  if (work.whole) {
    constexpr int kPacks = Shape::kPacks == 0 ? kUsualPacks : Shape::kPacks;
    for_whole_tile<Shape::kVectorBytes / sizeof(T), kPacks,
                   tile_count(sizeof(T), Shape::kVectorsPerTile), Shape::kStreams>(lane, step);
  } else {
    for_short_tile<4>(lane, work.count, step);
  }
}

/// Sums the rows of a table in which no row is in_tree.
template <class T, class Shape = UsualShape>
struct SumBody {
  static constexpr int kUsualBlocks = sizeof(T) == 8 || sizeof(T) == 1 ? 2 : 4;
  static constexpr int kBlocksPerSm = Shape::kBlocksPerSm == 0 ? kUsualBlocks : Shape::kBlocksPerSm;
  static constexpr int kMany = 4;  ///< inputs at a time, where a row has more

  TableView table;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = table.work<Shape::kVectorsPerTile>(tile, sizeof(T));
    switch (work.row->num_inputs) {
      case 1:
        return sum_tile<T, Shape, 4>(work, Inputs<T, 1>(work), lane);
      case 2:
        return sum_tile<T, Shape, 2>(work, Inputs<T, 2>(work), lane);
      case 3:
        return sum_tile<T, Shape, 1>(work, Inputs<T, 3>(work), lane);
      case 4:
        return sum_tile<T, Shape, 1>(work, Inputs<T, 4>(work), lane);
      default:
        return sum_tile<T, Shape, 1>(work, ManyInputs<T, kMany>{work}, lane);
    }
  }
};

/// Sums the rows of a table in which rows may be in_tree. This is a kernel of its own, because a
/// tree takes more registers.
template <class T, class Shape = UsualShape>
struct AnyOrderSumBody {
  static constexpr int kBlocksPerSm = 2;

  TableView table;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const TileWork work = table.work<Shape::kVectorsPerTile>(tile, sizeof(T));
    if (work.row->num_inputs == 1) return sum_tile<T, Shape, 1>(work, Inputs<T, 1>(work), lane);
    sum_tile<T, Shape, 1>(work, ManyInputs<T, 2>{work}, lane);
  }
};

}  // namespace tutti::gpus::kernels
