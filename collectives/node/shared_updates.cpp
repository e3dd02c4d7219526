// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/shared_updates.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/job/shifted.hpp"

namespace tutti::collectives {

/// Finds the arrays that this rank's updates write. Smaller calls are not shared: they are faster
/// where each rank updates for itself, and need the payload for their data.
void SharedUpdates::find() {
  offsets_.clear();
  first_offsets_.clear();
  const Consumer* const consumer = call_.operation->consumer;
  const bool may_be_shared = consumer != nullptr && consumer->takes_any_order() &&
                             call_.operation->kind == Kind::allreduce &&
                             call_.topology.num_nodes() == 1 && call_.memory.size() > 1 &&
                             call_.operation->packing == nullptr &&
                             call_.layout.total() > kInlineInNode;
  if (!may_be_shared) return;
  const auto can_be_written = [&](const UpdatedArray& place) {
    return call_.memory.is_mapped(call_.memory.offset_of(place.begin));
  };
  for (std::size_t segment = 0; segment < call_.layout.segments().size(); ++segment) {
    const auto own = consumer->updated_arrays(segment);
    first_offsets_.push_back(offsets_.size());
    for (const UpdatedArray& place : own) offsets_.push_back(call_.memory.offset_of(place.begin));
    const bool fits = offsets_.size() * sizeof(std::uint64_t) <= kInlineBytes;
    if (!own.empty() && fits && std::ranges::all_of(own, can_be_written)) continue;
    return offsets_.clear();
  }
}

void SharedUpdates::publish() const {
  if (offsets_.empty()) return;
  std::byte* const payload = call_.wide_payload(call_.memory.local_rank);
  const std::size_t bytes = offsets_.size() * sizeof(std::uint64_t);
  // If nothing has changed, peers still have the lines in their caches.
  if (std::memcmp(payload, offsets_.data(), bytes) != 0) {
    std::memcpy(payload, offsets_.data(), bytes);
  }
}

/// Updates tile by tile: the sum of a tile and the arrays that its update writes stay in the
/// first-level cache.
void SharedUpdates::update(const FusedLayout::Part& part, std::span<const std::byte* const> sources,
                           std::size_t first, std::size_t count, WritePolicy stores) const {
  constexpr std::size_t kTileBytes = std::size_t{4} << 10;
  const std::size_t width = size_of(call_.segment(part).dtype);
  alignas(FusedLayout::kAlignment) std::byte tile[kTileBytes];
  std::byte* const to = tile;
  for (std::size_t done = first, now = 0; done < first + count; done += now) {
    now = std::min(first + count - done, kTileBytes / width);
    if (!call_.workers.works(now * width * sources.size())) continue;
    Shifted from(sources, done * width);
    reduce(call_.to_output(part.segment), from.all(), std::span(&to, 1), now, WritePolicy::cached);
    call_.operation->consumer->consume(part.segment, part.first + done, now, tile);
    copy_places(part.segment, part.first + done, now, stores);
  }
}

/// Copies the elements that this rank has just updated to the arrays of its peers: one array after
/// the other, so that writes past the caches fill whole lines, and each rank begins with the next
/// rank.
void SharedUpdates::copy_places(std::size_t segment, std::size_t first, std::size_t count,
                                WritePolicy stores) const {
  const auto own = call_.operation->consumer->updated_arrays(segment);
  for (int step = 1; step < call_.memory.size(); ++step) {
    const int peer = (call_.memory.local_rank + step) % call_.memory.size();
    const auto* const theirs = reinterpret_cast<const std::uint64_t*>(call_.wide_payload(peer));
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::size_t offset = first * own[i].width;
      const std::byte* const from = own[i].begin + offset;
      std::byte* const to = call_.memory.peers[static_cast<std::size_t>(peer)].arena +
                            theirs[first_offsets_[segment] + i] + offset;
      reduce({ReduceOp::sum, DType::uint8, DType::uint8}, std::span(&from, 1), std::span(&to, 1),
             count * own[i].width, stores);
    }
  }
}

}  // namespace tutti::collectives
