// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/tiny_call.hpp"

#include <cstring>

#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

TinyCall::TinyCall(CallContext& call) : call_(call), sources_(call.memory.peers.size()) {
  call_.layout.reserve(kMostSegments);
}

bool TinyCall::prepare(const Operation& operation) noexcept {
  if (operation.packing != nullptr || operation.lanes_apart || !fits(operation.segments)) {
    return false;
  }
  call_.operation = &operation;
  call_.layout.assign(operation.segments, /*wide=*/false);  // has room for so few segments
  if (call_.layout.total() > call_.tuning.inline_shared_bytes) return false;
  call_.signature = sign(operation, call_.layout.total());
  call_.route = Route::tiny;
  return true;
}

/// True if the segments are few and small enough. Each rank has the segments that it is the source
/// of end to end in its own line. Sources must not decrease from one segment to the next, so that
/// the blocks of each source are consecutive.
bool TinyCall::fits(std::span<const Segment> segments) noexcept {
  if (segments.size() > kMostSegments) return false;
  std::size_t end = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    if (i > 0 && segment.source < segments[i - 1].source) return false;
    if (i > 0 && segment.source > segments[i - 1].source) end = 0;
    const std::size_t width = size_of(segment.dtype);
    end = (end + width - 1) / width * width;
    if (segment.count > kTinyBytes || end + segment.count * width > kTinyBytes) return false;
    offsets_[i] = static_cast<std::uint8_t>(end);
    end += segment.count * width;
  }
  return true;
}

bool TinyCall::sums_one_segment() const {
  const auto segments = call_.layout.segments();
  return segments.size() == 1 && segments.front().source == kEveryRank &&
         segments.front().second_output == nullptr && call_.operation->consumer == nullptr;
}

/// Copies without the kernels, because calling them would take longer than copying so few bytes.
void TinyCall::copy_to_self() const {
  call_.turn_to(Activity::copy_out);
  const auto segments = call_.layout.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& own = segments[i];
    if (own.count == 0 || !call_.is_destination(own)) continue;
    const int peer = call_.topology.local_rank_of(own.source);
    const std::byte* const from = peer == call_.memory.local_rank
                                      ? own.input
                                      : call_.line(peer).directory.tiny_payload + offsets_[i];
    const std::size_t bytes = own.count * size_of(own.dtype);
    std::memmove(own.output, from, bytes);  // source and destination are the same in place
    if (own.second_output != nullptr) std::memcpy(own.second_output, own.output, bytes);
  }
}

bool TinyCall::reduce_to_self() {
  if (call_.route != Route::tiny) return false;
  if (call_.operation->consumer == nullptr && has_single_sources(call_.layout)) {
    copy_to_self();
    return true;
  }
  if (!sums_one_segment()) return false;
  const Segment& only = call_.layout.segments().front();
  if (!call_.is_destination(only)) return true;
  call_.turn_to(Activity::reduce);
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    sources_[peer] =
        peer == call_.memory.local_rank ? only.input : call_.line(peer).directory.tiny_payload;
  }
  reduce({call_.operation->reduce, only.dtype, only.dtype}, sources_, std::span(&only.output, 1),
         only.count, WritePolicy::cached);
  return true;
}

}  // namespace tutti::collectives
