// SPDX-License-Identifier: Apache-2.0
// Updates that the ranks of a node share: each makes those of its own share of the elements, and
// writes what it has updated to all others.
#include <algorithm>
#include <cstring>

#include "collectives/job/shifted.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Where this rank's updates write, if peers may write there, too. Smaller calls are faster where
/// each rank updates for itself, and need their payload.
void Call::find_places() {
  places_.clear();
  first_places_.clear();
  const Consumer* const consumer = operation_->consumer;
  const bool may_be_shared = consumer != nullptr && consumer->takes_any_order() &&
                             operation_->kind == Kind::allreduce && topology_.num_nodes() == 1 &&
                             memory_.size() > 1 && !fits_inline_ &&
                             operation_->packing == nullptr && layout_.total() > kInlineInNode;
  if (!may_be_shared) return;
  const auto can_be_written = [&](const Place& place) {
    return memory_.is_mapped(memory_.offset_of(place.begin));
  };
  for (std::size_t segment = 0; segment < layout_.segments().size(); ++segment) {
    const auto own = consumer->places(segment);
    first_places_.push_back(places_.size());
    for (const Place& place : own) places_.push_back(memory_.offset_of(place.begin));
    const bool fits = places_.size() * sizeof(std::uint64_t) <= kInlineBytes;
    if (!own.empty() && fits && std::ranges::all_of(own, can_be_written)) continue;
    return places_.clear();
  }
}

void Call::fill_places() {
  if (places_.empty()) return;
  std::byte* const payload = payload_of(memory_.local_rank);
  const std::size_t bytes = places_.size() * sizeof(std::uint64_t);
  // Where nothing has changed, peers have the lines in their caches still.
  if (std::memcmp(payload, places_.data(), bytes) != 0) {
    std::memcpy(payload, places_.data(), bytes);
  }
}

void Call::update_for_all(Range range, const Sources& sources, WritePolicy stores) {
  turn_to(Activity::reduce_and_update);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    const std::size_t width = size_of(segment(part).dtype);
    workers_.over(part.count, width, [&](std::size_t first, std::size_t count) {
      update_tiles(part, first, count, stores);
    });
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

/// Updates `count` elements of a part, from its element `first` on. Its sources are gathered. The
/// sum of a tile stays in the first-level cache, and so do the places that its update writes.
void Call::update_tiles(const FusedLayout::Part& part, std::size_t first, std::size_t count,
                        WritePolicy stores) const {
  constexpr std::size_t kTileBytes = std::size_t{4} << 10;
  const std::size_t width = size_of(segment(part).dtype);
  alignas(FusedLayout::kAlignment) std::byte tile[kTileBytes];
  std::byte* const to = tile;
  for (std::size_t done = first, now = 0; done < first + count; done += now) {
    now = std::min(first + count - done, kTileBytes / width);
    if (!workers_.works(now * width * sources_.size())) continue;
    Shifted from(std::span<const std::byte* const>(sources_), done * width);
    reduce(to_output(part.segment), from.all(), std::span(&to, 1), now, WritePolicy::cached);
    operation_->consumer->consume(part.segment, part.first + done, now, tile);
    copy_places(part.segment, part.first + done, now, stores);
  }
}

/// What this rank has just updated, to the same elements of the others. One after the other, so
/// that a write past the caches fills whole lines, and each rank begins with the one after it.
void Call::copy_places(std::size_t segment, std::size_t first, std::size_t count,
                       WritePolicy stores) const {
  const auto own = operation_->consumer->places(segment);
  for (int step = 1; step < memory_.size(); ++step) {
    const int peer = (memory_.local_rank + step) % memory_.size();
    const auto* const theirs = reinterpret_cast<const std::uint64_t*>(payload_of(peer));
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::size_t offset = first * own[i].width;
      const std::byte* const from = own[i].begin + offset;
      std::byte* const to = memory_.peers[static_cast<std::size_t>(peer)].arena +
                            theirs[first_places_[segment] + i] + offset;
      reduce({ReduceOp::sum, DType::uint8, DType::uint8}, std::span(&from, 1), std::span(&to, 1),
             count * own[i].width, stores);
    }
  }
}

}  // namespace tutti::collectives
