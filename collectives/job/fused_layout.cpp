// SPDX-License-Identifier: Apache-2.0
#include "collectives/job/fused_layout.hpp"

namespace tutti::collectives {

namespace {
constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + FusedLayout::kAlignment - 1) / FusedLayout::kAlignment * FusedLayout::kAlignment;
}
}  // namespace

std::vector<Segment> allgather_segments(int ranks, const std::byte* input, std::byte* output,
                                        std::size_t count, DType dtype) {
  std::vector<Segment> segments;
  segments.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::byte* place = output + static_cast<std::size_t>(rank) * count * size_of(dtype);
    segments.push_back(
        {.input = input, .output = place, .count = count, .dtype = dtype, .source = rank});
  }
  return segments;
}

Range share_of(Range range, int parts, int index) {
  const auto count = static_cast<std::size_t>(parts);
  const std::size_t each = rounded_up((range.size() + count - 1) / count);
  const auto at = [&](std::size_t share) {
    return range.begin + std::min(share * each, range.size());
  };
  const auto which = static_cast<std::size_t>(index);
  return {at(which), at(which + 1)};
}

bool has_single_sources(const FusedLayout& layout) {
  return !layout.segments().empty() && layout.segments().front().source != kEveryRank;
}

void FusedLayout::assign(std::span<const Segment> segments, bool wide) {
  segments_ = segments;
  wide_ = wide;
  stretches_.clear();
  begins_.resize(segments.size() + 1);
  value_bytes_ = 0;
  std::size_t position = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    begins_[s] = position;
    value_bytes_ += segments[s].count * size_of(segments[s].dtype);
    position += room_of(s);
  }
  begins_.back() = position;
}

std::size_t FusedLayout::room_of(std::size_t segment) const {
  return rounded_up(segments_[segment].count * size_of(wire(segment)));
}

/// The progress of interleave() in one stream.
struct FusedLayout::Progress {
  std::size_t lines = 0;   ///< lines of the whole stream
  std::size_t done = 0;    ///< bytes that have a position already
  std::size_t next = 0;    ///< index in streams.segments of the segment where they end
  std::size_t offset = 0;  ///< the offset in that segment
};

void FusedLayout::interleave(const Streams& streams, std::size_t strips) {
  std::vector<Progress> places(streams.ends.size());
  for (std::size_t i = 0, next = 0; i < places.size(); ++i) {
    places[i].next = next;
    for (; next < streams.ends[i]; ++next) {
      places[i].lines += room_of(streams.segments[next]) / kAlignment;
    }
  }
  begins_.clear();
  stretches_.clear();
  std::size_t position = 0;
  for (std::size_t strip = 1; strip <= strips; ++strip) {
    for (Progress& place : places) {
      place_until(place.lines * strip / strips * kAlignment, streams, place, position);
    }
  }
  begins_.push_back(position);
}

void FusedLayout::place_until(std::size_t end, const Streams& streams, Progress& place,
                              std::size_t& position) {
  while (place.done < end) {
    const std::size_t segment = streams.segments[place.next];
    const std::size_t left = room_of(segment) - place.offset;
    const std::size_t now = std::min(left, end - place.done);
    if (now > 0) {
      begins_.push_back(position);
      stretches_.push_back({segment, place.offset});
    }
    position += now;
    place.done += now;
    place.offset = now == left ? 0 : place.offset + now;
    if (now == left) ++place.next;
  }
}

}  // namespace tutti::collectives
