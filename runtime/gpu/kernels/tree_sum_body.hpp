// SPDX-License-Identifier: Apache-2.0
// The sum over the ranks of a node of values on their GPUs, in the canonical order, whose left
// subtree has the largest power of two of inputs:
//
//   output = tree(input 0, input 1, ...)
//
// Bytes per element of N inputs: N + 1 elements, of which N - 1 come from other GPUs. All inputs of
// a vector are loaded before the first is added; PairTree has the order.
#pragma once

#include "runtime/gpu/kernels/sum_body.hpp"

namespace tutti::gpus::kernels {

template <class T>
struct TreeSumBody {
  // Vectors of 16 one-byte elements of 8 inputs would not all stay in the registers of two blocks.
  static constexpr int kBlocksPerSm = sizeof(T) == 1 ? 1 : 2;
  static constexpr int kMostInputs = TensorRow::kMostInputs;

  const T* inputs[kMostInputs];
  T* output;  ///< none of the inputs
  std::uint64_t count;
  int num_inputs;
  bool aligned;

  TUTTI_HOST_DEVICE void operator()(std::uint32_t tile, std::uint32_t lane) const {
    const std::uint32_t most = tile_count(sizeof(T));
    const std::uint64_t begin = std::uint64_t{tile} * most;
    const std::uint64_t left = count - begin;
    const std::uint32_t now = left < most ? static_cast<std::uint32_t>(left) : most;
    const auto step = [&]<class Where>(const Where& where) {
      Held<T, Where> sums;
      sum(sums, begin, where);
      store(sums, output + begin, where);
    };
    if (now == most && aligned) {
      for_whole_tile<kVectorBytes / sizeof(T), 1>(lane, step);
    } else {
      for_short_tile<1>(lane, now, step);
    }
  }

 private:
  template <class Where>
  TUTTI_HOST_DEVICE void sum(Held<T, Where>& held, std::uint64_t begin, const Where& where) const {
    Held<T, Where> loaded[kMostInputs];
    TUTTI_UNROLLED
    for (int i = 0; i < kMostInputs; ++i) {
      if (i < num_inputs) load(loaded[i], inputs[i] + begin, where);
    }
    PairTree<SummedIn<T>, Where> tree{};
    TUTTI_UNROLLED
    for (int first = 0; first < kMostInputs; first += 2) {
      if (first >= num_inputs) break;
      Held<SummedIn<T>, Where> pair{};
      add(pair, loaded[first], true);
      if (first + 1 < num_inputs) add(pair, loaded[first + 1], false);
      tree.add(pair, first);
    }
    each_element<Where>(
        [&](int pack, int k) { held.at(pack, k) = narrow<T>(tree.sum(num_inputs, pack, k)); });
  }
};

}  // namespace tutti::gpus::kernels
