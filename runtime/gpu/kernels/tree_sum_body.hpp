// SPDX-License-Identifier: Apache-2.0
// The sum over the ranks of a node of what their GPUs hold, in the canonical order:
//
//   output = tree(input 0, input 1, ...)      the left subtree has the largest power of two of
//   inputs
//
// Bytes per element of N inputs: N + 1 elements, of which N - 1 come from other GPUs. All inputs of
// a vector are loaded before the first is added. The additions go as a binary counter counts: input
// i completes the subtrees for which the low bits of i are ones.
#pragma once

#include "runtime/gpu/kernels/sum_body.hpp"

namespace tutti::gpus::kernels {

template <class T>
struct TreeSumBody {
  // Vectors of 16 one-byte elements of 8 inputs would not all stay in the registers of two blocks.
  static constexpr int kBlocksPerSm = sizeof(T) == 1 ? 1 : 2;
  static constexpr int kMostInputs = TensorRow::kMostInputs;
  static constexpr int kLevels = 4;
  static_assert(kMostInputs <= 1 << (kLevels - 1));

  const T* inputs[kMostInputs];
  T* output;  ///< may be none of the inputs
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
  using Sums = Held<SummedIn<T>, Where>;

  template <class Where>
  TUTTI_HOST_DEVICE void sum(Held<T, Where>& held, std::uint64_t begin, const Where& where) const {
    Held<T, Where> loaded[kMostInputs];
    TUTTI_UNROLLED
    for (int i = 0; i < kMostInputs; ++i) {
      if (i < num_inputs) load(loaded[i], inputs[i] + begin, where);
    }
    Sums<Where> levels[kLevels];  // [l] is a subtree of 2^l inputs
    TUTTI_UNROLLED
    for (int i = 0; i < kMostInputs; ++i) {
      if (i >= num_inputs) break;
      Sums<Where> subtree{};
      each_element<Where>(
          [&](int pack, int k) { subtree.at(pack, k) = widen(loaded[i].at(pack, k)); });
      int level = 0;
      TUTTI_UNROLLED
      for (int below = 0; below < kLevels - 1; ++below) {
        if (level != below || (i >> below & 1) == 0) continue;
        add_right(levels[below], subtree);
        subtree = levels[below];
        level = below + 1;
      }
      TUTTI_UNROLLED
      for (int l = 0; l < kLevels; ++l) {
        if (l == level) levels[l] = subtree;
      }
    }
    finish(held, levels);
  }

  /// What is left are subtrees of which each is the left neighbour of all smaller ones.
  template <class Where>
  TUTTI_HOST_DEVICE void finish(Held<T, Where>& held, Sums<Where>* levels) const {
    Sums<Where> whole{};
    bool is_empty = true;
    TUTTI_UNROLLED
    for (int l = 0; l < kLevels; ++l) {
      if ((num_inputs >> l & 1) == 0) continue;
      if (!is_empty) add_right(levels[l], whole);
      whole = levels[l];
      is_empty = false;
    }
    each_element<Where>([&](int pack, int k) { held.at(pack, k) = narrow<T>(whole.at(pack, k)); });
  }
};

}  // namespace tutti::gpus::kernels
