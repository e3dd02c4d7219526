// SPDX-License-Identifier: Apache-2.0
#include "collectives/fused_layout.hpp"

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
  begins_.resize(segments.size() + 1);
  value_bytes_ = 0;
  std::size_t position = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    begins_[s] = position;
    value_bytes_ += segments[s].count * size_of(segments[s].dtype);
    position += rounded_up(segments[s].count * size_of(wire(s)));
  }
  begins_.back() = position;
}

}  // namespace tutti::collectives
