// SPDX-License-Identifier: Apache-2.0
// The tensors of one call laid end to end, so that a list of keys is one operation.
//
//   segment 0          segment 1     segment 2
//   |#########......|##############|###...........|      # elements   . padding to kAlignment
//   0               b1             b2             total
//
// Positions are bytes of the "wire" type, in which partial sums cross between nodes: the element
// type, or float32 for 16-bit types when reproducibility is asked for. Chunks, shares and pieces
// are ranges of positions that begin at multiples of kAlignment, so two ranks never write one line.
//
// interleave() deals the same elements out in strips, so that every chunk has some of each node's:
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
/// the destination ranks: every rank, or one. That makes all collectives one: a broadcast has one
/// source; an allgather has a segment from each rank, a reduce_scatter a segment for each rank.
struct Segment {
  const std::byte* input = nullptr;  ///< set on ranks that are a source
  std::byte* output = nullptr;       ///< set on ranks that are a destination
  std::size_t count = 0;
  DType dtype = DType::float32;
  int source = kEveryRank;
  int destination = kEveryRank;
  std::byte* second_output = nullptr;  ///< gets the same result on this rank; null for none
  /// In a job of one rank: several inputs, to be summed. `input` is the first of them. Empty for
  /// one.
  std::span<const std::byte* const> inputs{};
};

/// The segments of an allgather of equal blocks: `output` receives what every rank has in `input`,
/// one after the other.
std::vector<Segment> allgather_segments(int ranks, const std::byte* input, std::byte* output,
                                        std::size_t count, DType dtype);

/// Segments of blocks that go from one rank or every rank to one rank or every rank, of which this
/// rank sees its own side: blocks lie one after the other in its input and in its output, without
/// those that it does not give or want. Few of them take no memory from the heap, which calls of
/// few bytes would notice. Where there is no memory for many, all() is a null list of as many, with
/// which a call throws on all ranks.
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

  /// All ranks add the same blocks in the same order, and as many as were named.
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
  Segment* segments_;  ///< in `few_`, or all of `many_`; null: no memory for many
  std::size_t count_ = 0;
};

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Share `index` of `parts` near-equal, aligned shares of a range; later ones may be empty.
Range share_of(Range range, int parts, int index);

class FusedLayout;
/// True if every element has one source: data is copied, not summed. All segments of a call have
/// the same kind of source.
bool has_single_sources(const FusedLayout& layout);

class FusedLayout {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Elements first .. first + count - 1 of one segment, at `position`. Those in front of them,
  /// from `start` on, are of the same segment.
  struct Part {
    std::size_t segment;
    std::size_t first;
    std::size_t count;
    std::size_t position;
    std::size_t start;
  };
  /// All segments of a call with data, stream after stream.
  struct Streams {
    std::vector<std::size_t> segments;
    std::vector<std::size_t> ends;  ///< of each stream, in `segments`
  };

  /// `wide` makes float32 the wire type of 16-bit floating-point segments. Keeps its memory from
  /// one call to the next. The segments must outlive their use here.
  void assign(std::span<const Segment> segments, bool wide);
  /// Gives elements new positions, until the next assign(): in each of so many strips each stream
  /// has as large a part as in all of them. for_each_segment() is for a layout without.
  void interleave(const Streams& streams, std::size_t strips);
  /// From now on assign() needs no memory for as many segments.
  void reserve(std::size_t segments) { begins_.reserve(segments + 1); }

  [[nodiscard]] std::size_t total() const { return begins_.back(); }
  /// The bytes of the elements themselves, without padding and in their own types.
  [[nodiscard]] std::size_t value_bytes() const { return value_bytes_; }
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }
  /// Where an element lies in a scratch slot that holds `chunk` in the segments' own types: at its
  /// position in the chunk, but elements narrower than the wire's lie side by side.
  [[nodiscard]] std::size_t slot_offset(const Part& part, Range chunk) const {
    const std::size_t start = std::max(chunk.begin, part.start);
    const std::size_t narrower =
        size_of(wire(part.segment)) / size_of(segments_[part.segment].dtype);
    return (start - chunk.begin) + (part.position - start) / narrower;
  }
  /// The positions that a segment takes up, with its padding.
  [[nodiscard]] std::size_t room_of(std::size_t segment) const;
  [[nodiscard]] DType wire(std::size_t segment) const {
    return wide_ && size_of(segments_[segment].dtype) == 2 ? DType::float32
                                                           : segments_[segment].dtype;
  }

  /// Calls visit(part) for every segment, whole, in order.
  template <class Visit>
  void for_each_segment(Visit&& visit) const {
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (segments_[s].count > 0) visit(Part{s, 0, segments_[s].count, begins_[s], begins_[s]});
    }
  }

  /// Calls visit(part) for every segment's part of the range, in order.
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
  /// Gives positions to a stream's bytes up to `end`.
  void place_until(std::size_t end, const Streams& streams, Progress& place, std::size_t& position);

  /// What lies together of a segment, from this byte of its wire elements on.
  struct Stretch {
    std::size_t segment;
    std::size_t offset;
  };

  std::span<const Segment> segments_;
  /// Where each segment begins, or each stretch, in bytes, then the total.
  std::vector<std::size_t> begins_{0, 0};
  std::vector<Stretch> stretches_;  ///< empty: each segment is one
  std::size_t value_bytes_ = 0;
  bool wide_ = false;
};

}  // namespace tutti::collectives
