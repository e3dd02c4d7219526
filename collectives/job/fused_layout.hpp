// SPDX-License-Identifier: Apache-2.0
// FusedLayout: the tensors of one call laid end to end, so that a list of keys is one operation.
//
//   segment 0          segment 1     segment 2
//   |#########......|##############|###...........|      # elements   . padding to kAlignment
//   0               b1             b2             total
//
// Positions are bytes of the wire type, in which partial sums cross between nodes: the element
// type, or float32 for 16-bit types if reproducible sums are requested. Chunks, shares and pieces
// are ranges of positions that begin at multiples of kAlignment, so that two ranks never write the
// same line.
//
// interleave() distributes the same elements in strips, so that every chunk has some of each
// node's:
//
//   segment 0, strip 0   segment 1, strip 0   segment 0, strip 1   segment 1, strip 1
//   |##################|####################|##################|###############.....|
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "tutti/dtype.hpp"

namespace tutti::collectives {

inline constexpr int kEveryRank = -1;

/// One tensor of a call, on one rank. Its elements are reduced over the source ranks and written on
/// the destination ranks; each of these is either every rank or a single one. All collectives have
/// this form: a broadcast has one source; an allgather has a segment from each rank, and a
/// reduce_scatter a segment for each rank.
struct Segment {
  const std::byte* input = nullptr;  ///< set on ranks that are a source
  std::byte* output = nullptr;       ///< set on ranks that are a destination
  std::size_t count = 0;
  DType dtype = DType::float32;
  int source = kEveryRank;
  int destination = kEveryRank;
  std::byte* second_output = nullptr;  ///< also gets the result on this rank; null if unused
  /// In a job of one rank: several inputs to be summed, of which `input` is the first; empty if
  /// there is only one.
  std::span<const std::byte* const> inputs{};
};

/// Returns the segments of an allgather of equal blocks: `output` receives the `input` of every
/// rank, in the order of ranks.
std::vector<Segment> allgather_segments(int ranks, const std::byte* input, std::byte* output,
                                        std::size_t count, DType dtype);

/// The segments of blocks that go from one rank or every rank to one rank or every rank, as this
/// rank sees them: its input and its output have the blocks that it sends and receives one after
/// the other, without those of other ranks. A few segments need no allocation, because it would
/// slow down small calls. If there is no memory for many of them, all() returns a null list of the
/// same length, with which a call throws on all ranks.
class BlockSegments {
 public:
  BlockSegments(int rank, const std::byte* input, std::byte* output, DType dtype,
                std::size_t blocks) noexcept
      : rank_(rank),
        input_(input),
        output_(output),
        dtype_(dtype),
        many_(blocks > kFew ? new (std::nothrow) Segment[blocks] : nullptr),
        segments_(blocks > kFew ? many_.get() : reinterpret_cast<Segment*>(few_)) {}
  BlockSegments(const BlockSegments&) = delete;
  BlockSegments& operator=(const BlockSegments&) = delete;

  /// Adds a block. All ranks add the same blocks in the same order, as many as the constructor was
  /// told.
  void add(int source, int destination, std::size_t count) {
    const std::size_t place = count_++;
    if (segments_ == nullptr) return;
    const std::size_t bytes = count * size_of(dtype_);
    const bool is_source = source == rank_ || source == kEveryRank;
    const bool is_destination = destination == rank_ || destination == kEveryRank;
    std::construct_at(segments_ + place, Segment{.input = is_source ? input_ : nullptr,
                                                 .output = is_destination ? output_ : nullptr,
                                                 .count = count,
                                                 .dtype = dtype_,
                                                 .source = source,
                                                 .destination = destination});
    if (is_source) input_ += bytes;
    if (is_destination) output_ += bytes;
  }
  [[nodiscard]] std::span<const Segment> all() const { return {segments_, count_}; }

 private:
  static constexpr std::size_t kFew = 16;

  int rank_;
  const std::byte* input_;
  std::byte* output_;
  DType dtype_;
  alignas(Segment) std::byte few_[kFew * sizeof(Segment)];
  std::unique_ptr<Segment[]> many_;
  Segment* segments_;  ///< points to `few_` or `many_`; null if there is no memory
  std::size_t count_ = 0;
};

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Returns share `index` of `parts` near-equal, aligned shares of a range; later ones may be empty.
Range share_of(Range range, int parts, int index);

class FusedLayout;
/// True if every element has a single source, so that data is copied, not summed. All segments of a
/// call have the same kind of source.
bool has_single_sources(const FusedLayout& layout);

class FusedLayout {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Elements first .. first + count - 1 of one segment, at `position`. The positions from `start`
  /// on belong to the same segment.
  struct Part {
    std::size_t segment;
    std::size_t first;
    std::size_t count;
    std::size_t position;
    std::size_t start;
  };
  /// The segments of a call that have data, grouped into streams.
  struct Streams {
    std::vector<std::size_t> segments;
    std::vector<std::size_t> ends;  ///< end of each stream in `segments`
  };

  /// Lays out the segments of a call. `wide` makes float32 the wire type of 16-bit floating-point
  /// segments. Memory is kept for the next call. The segments must outlive their use here.
  void assign(std::span<const Segment> segments, bool wide);
  /// Gives the elements new positions, until the next assign(): in each of `strips` strips, each
  /// stream has the same proportion as in the whole. for_each_segment() must not be used with such
  /// a layout.
  void interleave(const Streams& streams, std::size_t strips);
  /// Makes assign() need no allocation for up to this number of segments.
  void reserve(std::size_t segments) { begins_.reserve(segments + 1); }

  [[nodiscard]] std::size_t total() const { return begins_.back(); }
  /// Returns the bytes of the elements in their own types, without padding.
  [[nodiscard]] std::size_t value_bytes() const { return value_bytes_; }
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }
  /// Returns the offset of a part in a scratch slot that holds `chunk` in the segments' own types:
  /// its position in the chunk, except that elements narrower than the wire type are packed.
  [[nodiscard]] std::size_t slot_offset(const Part& part, Range chunk) const {
    const std::size_t start = std::max(chunk.begin, part.start);
    const std::size_t narrower =
        size_of(wire(part.segment)) / size_of(segments_[part.segment].dtype);
    return (start - chunk.begin) + (part.position - start) / narrower;
  }
  /// Returns the size of a segment in positions, including its padding.
  [[nodiscard]] std::size_t room_of(std::size_t segment) const;
  [[nodiscard]] DType wire(std::size_t segment) const {
    return wide_ && size_of(segments_[segment].dtype) == 2 ? DType::float32
                                                           : segments_[segment].dtype;
  }

  /// Calls visit(part) for every whole segment, in order.
  template <class Visit>
  void for_each_segment(Visit&& visit) const {
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (segments_[s].count > 0) visit(Part{s, 0, segments_[s].count, begins_[s], begins_[s]});
    }
  }

  /// Calls visit(part) for the part of every segment that lies in the range, in order.
  template <class Visit>
  void for_each_part(Range range, Visit&& visit) const {
    if (range.begin >= range.end) return;
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), range.begin);
    for (auto i = static_cast<std::size_t>(after - begins_.begin()) - 1;
         i + 1 < begins_.size() && begins_[i] < range.end; ++i) {
      const Stretch stretch = stretches_.empty() ? Stretch{i, 0} : stretches_[i];
      const std::size_t s = stretch.segment;
      const std::size_t width = size_of(wire(s));
      const std::size_t from = std::max(range.begin, begins_[i]) - begins_[i];
      const std::size_t to = std::min({range.end - begins_[i], begins_[i + 1] - begins_[i],
                                       segments_[s].count * width - stretch.offset});
      if (from < to) {
        visit(Part{s, (stretch.offset + from) / width, (to - from) / width, begins_[i] + from,
                   begins_[i]});
      }
    }
  }

 private:
  struct Progress;
  /// Gives positions to the bytes of a stream up to `end`.
  void place_until(std::size_t end, const Streams& streams, Progress& place, std::size_t& position);

  /// A contiguous part of a segment, beginning at this byte of its wire elements.
  struct Stretch {
    std::size_t segment;
    std::size_t offset;
  };

  std::span<const Segment> segments_;
  /// The first position of each segment, or of each stretch, followed by the total.
  std::vector<std::size_t> begins_{0, 0};
  std::vector<Stretch> stretches_;  ///< empty: each segment is one stretch
  std::size_t value_bytes_ = 0;
  bool wide_ = false;
};

}  // namespace tutti::collectives
