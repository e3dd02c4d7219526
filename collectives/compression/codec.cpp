// SPDX-License-Identifier: Apache-2.0
#include "collectives/compression/codec.hpp"

#include <algorithm>

#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

void Codec::sum(std::span<const std::byte* const> packed, PackedRange range, Workspace& workspace,
                float* sums) const {
  if (packed.size() == 1) return unpack(packed.front(), range, sums);
  auto& [tiles, sources] = workspace;
  tiles.resize(std::max(tiles.size(), packed.size() * kTile));
  sources.resize(packed.size());
  for (std::size_t sender = 0; sender < packed.size(); ++sender) {
    float* tile = tiles.data() + sender * kTile;
    unpack(packed[sender], range, tile);
    sources[sender] = reinterpret_cast<const std::byte*>(tile);
  }
  auto* target = reinterpret_cast<std::byte*>(sums);
  reduce({}, sources, std::span(&target, 1), range.count, WritePolicy::cached);
}

}  // namespace tutti::collectives
