// SPDX-License-Identifier: Apache-2.0
#include "collectives/fused_layout.hpp"

#include <doctest/doctest.h>
#include <vector>

using namespace tutti::collectives;
using tutti::DType;

namespace {

std::vector<Segment> segments_of(const std::vector<std::size_t>& counts, DType dtype) {
  std::vector<Segment> segments;
  for (const std::size_t count : counts) segments.push_back({nullptr, nullptr, count, dtype});
  return segments;
}

/// How often each element is visited when the layout is walked in chunks.
std::vector<std::vector<int>> visits(const FusedLayout& layout, std::size_t chunk_bytes) {
  std::vector<std::vector<int>> seen;
  for (const Segment& segment : layout.segments()) seen.emplace_back(segment.count, 0);
  for (std::size_t begin = 0; begin < layout.total(); begin += chunk_bytes) {
    const Range chunk{begin, std::min(layout.total(), begin + chunk_bytes)};
    layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
      for (std::size_t i = 0; i < part.count; ++i) ++seen[part.segment][part.first + i];
    });
  }
  return seen;
}

}  // namespace

TEST_CASE("walking in chunks of any size visits every element of every segment once") {
  const auto segments = segments_of({0, 1, 17, 0, 1000, 16, 3, 0}, DType::float32);
  FusedLayout layout;
  for (const bool wide : {false, true}) {
    layout.assign(segments, wide);
    for (const std::size_t chunk : {64u, 128u, 640u, 4096u, 1u << 20}) {
      for (const auto& segment : visits(layout, chunk)) {
        CHECK(segment == std::vector<int>(segment.size(), 1));
      }
    }
  }
}

TEST_CASE("segments begin at multiples of the alignment") {
  const auto segments = segments_of({1, 33, 7}, DType::int8);
  FusedLayout layout;
  layout.assign(segments, false);
  layout.for_each_part({0, layout.total()}, [](const FusedLayout::Part& part) {
    CHECK(part.position % FusedLayout::kAlignment == 0);
  });
  CHECK(layout.total() == 3 * FusedLayout::kAlignment);
}

TEST_CASE("a wide layout gives 16-bit elements the room of float32") {
  const auto segments = segments_of({64}, DType::bfloat16);
  FusedLayout layout;
  layout.assign(segments, false);
  CHECK(layout.total() == 128);
  CHECK(layout.wire(0) == DType::bfloat16);
  layout.assign(segments, true);
  CHECK(layout.total() == 256);
  CHECK(layout.wire(0) == DType::float32);
}

TEST_CASE("shares are disjoint, aligned, in order, and cover the range") {
  for (const std::size_t bytes : {0u, 64u, 128u, 192u, 6400u, 1u << 20}) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::size_t at = 128;
      for (int i = 0; i < parts; ++i) {
        const Range share = share_of({128, 128 + bytes}, parts, i);
        CHECK(share.begin == at);
        CHECK(share.begin % FusedLayout::kAlignment == 0);
        at = share.end;
      }
      CHECK(at == 128 + bytes);
    }
  }
}
