// SPDX-License-Identifier: Apache-2.0
// output = input 0 + input 1 + ...
//
// Bytes per element of N inputs: N + 1 elements. With less than 48 KB in flight per multiprocessor
// an H200's memory waits; one vector of one input per thread is 32 KB at most, so few inputs load
// several vectors before they add.
#pragma once

#include "runtime/gpu/kernels/halves.hpp"
#include "runtime/gpu/kernels/rows.hpp"

namespace tutti::gpus::kernels {

/// Sums start from their first input, not from +0, which would make +0 of -0.
template <class T, class Where>
TUTTI_HOST_DEVICE void add(Held<SummedIn<T>, Where>& sums, Held<T, Where>& input, bool is_first) {
  each_element<Where>([&](int pack, int k) {
    const SummedIn<T> value = widen(input.at(pack, k));
    sums.at(pack, k) = is_first ? value : static_cast<SummedIn<T>>(sums.at(pack, k) + value);
  });
}

/// Sums a row's inputs at the same places from left to right, kGroup of them at a time: they are
/// all loaded before the first is added. `held` gets the sum as it is stored.
template <int kGroup, class T, class Where>
TUTTI_HOST_DEVICE void load_sum(Held<T, Where>& held, const Work& work, const Where& where) {
  const int num_inputs = work.row->num_inputs;
  Held<SummedIn<T>, Where> sums{};
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
      add(sums, inputs[i], first + i == 0);
    }
  }
  each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(sums.at(pack, k)); });
}

/// The tile's parts of the first kInputs inputs. Pointers that are not copied here would be read
/// again after every store, which might have changed them as far as the compiler knows.
template <class T, int kInputs>
struct Inputs {
  const T* tiles[kInputs];

  TUTTI_HOST_DEVICE explicit Inputs(const Work& work) {
    TUTTI_UNROLLED
    for (int i = 0; i < kInputs; ++i) {
      tiles[i] = reinterpret_cast<const T*>(work.inputs[i]) + work.begin;
    }
  }

  /// As load_sum(). One input is copied as it is.
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

/// As many as the row says, kGroup at a time.
template <class T, int kGroup>
struct ManyInputs {
  const Work& work;

  template <class Where>
  TUTTI_HOST_DEVICE void load_sum(Held<T, Where>& held, const Where& where) const {
    kernels::load_sum<kGroup>(held, work, where);
  }
};

template <class T, class Shape = UsualShape>
struct SumBody {
  static constexpr int kUsualBlocks = sizeof(T) == 8 || sizeof(T) == 1 ? 2 : 4;
  static constexpr int kBlocksPerSm = Shape::kBlocksPerSm == 0 ? kUsualBlocks : Shape::kBlocksPerSm;
  static constexpr int kMany = 4;  ///< inputs at a time, where there are more

  TableView table;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const Work work = table.work<Shape>(tile, sizeof(T));
    switch (work.row->num_inputs) {
      case 1:
        return sum_tile<4>(work, Inputs<T, 1>(work), lane);
      case 2:
        return sum_tile<2>(work, Inputs<T, 2>(work), lane);
      case 3:
        return sum_tile<1>(work, Inputs<T, 3>(work), lane);
      case 4:
        return sum_tile<1>(work, Inputs<T, 4>(work), lane);
      default:
        return sum_tile<1>(work, ManyInputs<T, kMany>{work}, lane);
    }
  }

 private:
  template <int kUsualPacks, class Sources>
  TUTTI_HOST_DEVICE static void sum_tile(const Work& work, const Sources& inputs,
                                         std::uint32_t lane) {
    T* const output = reinterpret_cast<T*>(work.row->output) + work.begin;
    const auto step = [&]<class Where>(const Where& where) {
      Held<T, Where> sums;
      inputs.load_sum(sums, where);
      store(sums, output, where);
    };
    if (work.whole) {
      constexpr int kPacks = Shape::kPacks == 0 ? kUsualPacks : Shape::kPacks;
      for_whole_tile<Shape::kVectorBytes / sizeof(T), kPacks,
                     tile_count(sizeof(T), Shape::kVectorsPerTile)>(lane, step);
    } else {
      for_short_tile<4>(lane, work.count, step);
    }
  }
};

}  // namespace tutti::gpus::kernels
