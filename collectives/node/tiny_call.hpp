// SPDX-License-Identifier: Apache-2.0
// TinyCall, the shortest path: a call in one node whose data travels in the first cache line of
// each rank's announcement, in 0.2 us. It has up to kTinyBytes of each rank's data, end to end.
//
//   prepare()         nothing is allocated, and nothing can fail
//   Announcement      writes one cache line, and finds all ranks alike: finds_all_alike()
//   reduce_to_self()  sums or copies from the other ranks' lines, and the call is done
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/node/call_context.hpp"

namespace tutti::collectives {

/// The current call, if its route is tiny.
class TinyCall {
 public:
  explicit TinyCall(CallContext& call);

  /// Makes the operation the current call if it is tiny, which all ranks decide alike. Returns
  /// false if it is not.
  [[nodiscard]] bool prepare(const Operation& operation) noexcept;

  /// Returns the offset of a segment in the payload of its source, in bytes.
  [[nodiscard]] std::size_t offset_of(std::size_t segment) const { return offsets_[segment]; }

  /// Completes the call from the announcements, if it is one of the simple kinds that are most
  /// common: one sum, into one output, on every rank or on one; or blocks to copy. Returns false,
  /// having done nothing, if it is not.
  [[nodiscard]] bool reduce_to_self();

 private:
  static constexpr std::size_t kMostSegments = 16;

  [[nodiscard]] bool fits(std::span<const Segment> segments) noexcept;
  [[nodiscard]] bool sums_one_segment() const;
  void copy_to_self() const;

  CallContext& call_;
  std::uint8_t offsets_[kMostSegments] = {};
  std::vector<const std::byte*> sources_;  ///< addresses of each local rank's data
};

}  // namespace tutti::collectives
