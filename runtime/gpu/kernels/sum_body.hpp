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
TUTTI_ON_ANY void add(Held<SummedIn<T>, Where>& sums, Held<T, Where>& input, bool is_first) {
  each_element<Where>([&](int pack, int k) {
    const SummedIn<T> value = widen(input.at(pack, k));
    sums.at(pack, k) = is_first ? value : static_cast<SummedIn<T>>(sums.at(pack, k) + value);
  });
}

/// Sums a row's inputs at the same places from left to right, kGroup of them at a time: they are
/// all loaded before the first is added. `held` gets the sum as it is stored.
template <int kGroup, class T, class Where>
TUTTI_ON_ANY void load_sum(Held<T, Where>& held, const DeviceRow& row, std::uint64_t begin,
                           const Where& where) {
  Held<SummedIn<T>, Where> sums{};
  TUTTI_NOT_UNROLLED
  for (int first = 0; first < row.num_inputs; first += kGroup) {
    Held<T, Where> inputs[kGroup];
    TUTTI_UNROLLED
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= row.num_inputs) break;
      load(inputs[i], reinterpret_cast<const T*>(row.inputs[first + i]) + begin, where);
    }
    TUTTI_UNROLLED
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= row.num_inputs) break;
      add(sums, inputs[i], first + i == 0);
    }
  }
  each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(sums.at(pack, k)); });
}

/// The same for as many inputs as are known when this is compiled. One is copied as it is.
template <int kInputs, class T, class Where>
TUTTI_ON_ANY void load_sum_of(Held<T, Where>& held, const DeviceRow& row, std::uint64_t begin,
                              const Where& where) {
  if constexpr (kInputs == 1) {
    load(held, reinterpret_cast<const T*>(row.inputs[0]) + begin, where);
  } else {
    Held<T, Where> inputs[kInputs];
    TUTTI_UNROLLED
    for (int i = 0; i < kInputs; ++i) {
      load(inputs[i], reinterpret_cast<const T*>(row.inputs[i]) + begin, where);
    }
    Held<SummedIn<T>, Where> sums{};
    TUTTI_UNROLLED
    for (int i = 0; i < kInputs; ++i) add(sums, inputs[i], i == 0);
    each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(sums.at(pack, k)); });
  }
}

template <class T>
struct SumBody {
  static constexpr int kBlocksPerSm = sizeof(T) == 8 || sizeof(T) == 1 ? 2 : 4;
  static constexpr int kMany = 4;  ///< inputs at a time, where there are more

  TableView table;

  TUTTI_ON_ANY void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const Work work = table.work(tile, sizeof(T));
    switch (work.row->num_inputs) {
      case 1:
        return tile_of<1, 4>(work, lane);
      case 2:
        return tile_of<2, 2>(work, lane);
      case 3:
        return tile_of<3, 1>(work, lane);
      case 4:
        return tile_of<4, 1>(work, lane);
      default:
        return tile_of<0, 1>(work, lane);
    }
  }

 private:
  template <int kInputs, int kPacks>
  TUTTI_ON_ANY void tile_of(const Work& work, std::uint32_t lane) const {
    if (work.whole) {
      for_whole_tile<kVectorBytes / sizeof(T), kPacks>(
          lane, [&](const auto& where) { step<kInputs>(work, where); });
    } else {
      for_short_tile(lane, work.count, [&](const auto& where) { step<kInputs>(work, where); });
    }
  }

  /// 0 inputs: as many as the row says.
  template <int kInputs, class Where>
  TUTTI_ON_ANY void step(const Work& work, const Where& where) const {
    Held<T, Where> sums;
    if constexpr (kInputs == 0) {
      load_sum<kMany>(sums, *work.row, work.begin, where);
    } else {
      load_sum_of<kInputs>(sums, *work.row, work.begin, where);
    }
    store(sums, reinterpret_cast<T*>(work.row->output) + work.begin, where);
  }
};

}  // namespace tutti::gpus::kernels
