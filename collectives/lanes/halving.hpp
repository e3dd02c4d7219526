// SPDX-License-Identifier: Apache-2.0
// The schedule of recursive halving among a power of two of nodes: which of the pieces of a sum a
// node still sums. exchange_halving.cpp has the picture.
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

/// What the node `index` sums after so many rounds. Round r halves with the node index xor 2^r: the
/// one whose bit r is 0 keeps the lower half.
inline Pieces kept_after(int rounds, int index, int pieces) {
  Pieces kept{0, pieces};
  for (int round = 0; round < rounds; ++round) {
    const int middle = (kept.begin + kept.end) / 2;
    ((index >> round) & 1) == 0 ? kept.end = middle : kept.begin = middle;
  }
  return kept;
}

/// Their bytes, where `pieces` of them are the whole: as many lines as any other piece, or one
/// more. So halves are halves also where there are more pieces than lines.
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
