// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/block_streams.hpp"

namespace tutti::collectives {

bool BlockStreams::Stream::add(Range block, bool is_kept) {
  if (given[0].size() == 0) given[0] = {block.begin, block.begin};
  if (given[0].end != block.begin || (is_kept && keeps_one)) return false;
  given[0].end = block.end;
  if (is_kept) {
    keeps_one = true;
    kept = block;
  }
  return true;
}

void BlockStreams::Stream::begin_behind_kept() {
  const Range all = given[0];
  if (!keeps_one) {
    kept = all;
    return;
  }
  given[0] = {kept.end, all.end};
  given[1] = {all.begin, kept.begin};
}

bool BlockStreams::assign(const FusedLayout& layout, const Topology& topology) noexcept {
  std::fill(streams_.begin(), streams_.end(), Stream{});
  longest_ = 0;
  is_taker_ = false;
  bool are_together = true;
  layout.for_each_segment([&](const FusedLayout::Part& part) {
    const Segment& segment = layout.segments()[part.segment];
    const Range positions{part.position, part.position + layout.room_of(part.segment)};
    Stream& stream = streams_[static_cast<std::size_t>(topology.local_rank_of(segment.source))];
    const bool is_wanted =
        segment.destination == kEveryRank || segment.destination == topology.rank;
    is_taker_ = is_taker_ || (is_wanted && segment.source != topology.rank);
    are_together = are_together && stream.add(positions, segment.destination == segment.source);
  });
  for (Stream& stream : streams_) {
    stream.begin_behind_kept();
    longest_ = std::max(longest_, stream.given[0].size() + stream.given[1].size());
  }
  return are_together;
}

}  // namespace tutti::collectives
