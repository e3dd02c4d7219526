// SPDX-License-Identifier: Apache-2.0
// The schedule of recursive halving among a power of two of nodes: the pieces of a sum that each
// node still sums. See the picture in exchange_halving.cpp.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/job/fused_layout.hpp"

namespace tutti::collectives {

/// Pieces begin .. end - 1 of a sum.
struct Pieces {
  int begin;
  int end;
};

/// Returns the pieces that the node `index` sums after `rounds` rounds. In round r it exchanges
/// halves with the node index xor 2^r, and the one whose bit r is 0 keeps the lower half.
inline Pieces kept_after(int rounds, int index, int pieces) {
  Pieces kept{0, pieces};
  for (int round = 0; round < rounds; ++round) {
    const int middle = (kept.begin + kept.end) / 2;
    ((index >> round) & 1) == 0 ? kept.end = middle : kept.begin = middle;
  }
  return kept;
}

/// Returns the bytes of some pieces if there are `pieces` pieces in `whole`. Sizes of pieces differ
/// by at most one line, so that halves are about equal even if there are more pieces than lines.
inline Range range_of(Range whole, int pieces, Pieces some) {
  constexpr std::size_t kLine = FusedLayout::kAlignment;
  const std::size_t lines = (whole.size() + kLine - 1) / kLine;
  const auto at = [&](int piece) {
    const std::size_t before =
        lines * static_cast<std::size_t>(piece) / static_cast<std::size_t>(pieces);
    return whole.begin + std::min(before * kLine, whole.size());
  };
  return {at(some.begin), at(some.end)};
}

}  // namespace tutti::collectives
