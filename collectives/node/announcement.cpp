// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/announcement.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::collectives {

namespace {

Verb verb_of(const Operation& operation) noexcept {
  return operation.verb == Verb::of_kind ? of_kind(operation.kind) : operation.verb;
}

}  // namespace

Announcement::Announcement(const CallContext& call, const TinyCall& tiny, SharedUpdates& updates,
                           AllocateShared allocate_shared)
    : call_(call),
      tiny_(tiny),
      updates_(updates),
      allocate_shared_(std::move(allocate_shared)),
      directories_(call.memory.peers.size()) {}

/// Returns the AnnounceFlags that tell where this rank's inputs and outputs lie.
std::uint32_t Announcement::memory_flags() const {
  const bool consumed = call_.operation->consumer != nullptr;
  std::uint32_t flags = kInputsShared | kInputsPrivate | kInputsApart;
  flags |= consumed ? kConsumed : kOutputsInPlace;
  if (updates_.may_be_shared()) flags |= kSharesUpdates;
  const auto is_mapped = [&](const std::byte* address) {
    return call_.memory.is_mapped(call_.memory.offset_of(address));
  };
  for (const Segment& segment : call_.layout.segments()) {
    if (segment.count == 0) continue;
    if (call_.is_source(segment)) {
      flags &= ~(is_mapped(segment.input) ? kInputsPrivate : kInputsShared);
      if (call_.is_destination(segment) && call_.is_overwritten(segment)) flags &= ~kInputsApart;
    }
    const bool in_place = is_mapped(segment.output) &&
                          (segment.second_output == nullptr || is_mapped(segment.second_output));
    if (call_.is_destination(segment) && !in_place) flags &= ~kOutputsInPlace;
  }
  return flags;
}

/// Ensures that the table of the line in which the call will be announced is large enough. Peers
/// have finished reading what the call before the last one wrote there, see AnnounceLine.
void Announcement::make_room() {
  const std::size_t segments = call_.layout.segments().size();
  std::span<SharedSegment>& table = tables_[(call_.sequence + 1) & 1];
  if (segments < 2 || segments <= table.size()) return;
  const std::size_t entries = std::bit_ceil(segments);
  table = {reinterpret_cast<SharedSegment*>(allocate_shared_(entries * sizeof(SharedSegment))),
           entries};
}

void Announcement::fill_directory() {
  const auto segments = call_.layout.segments();
  const auto shared_segment = [&](const Segment& segment) {
    return SharedSegment{
        call_.memory.offset_of(segment.input), call_.memory.offset_of(segment.output),
        segment.second_output == nullptr ? kNoBuffer
                                         : call_.memory.offset_of(segment.second_output)};
  };
  SegmentDirectory& directory = call_.line(call_.memory.local_rank).directory;
  if (segments.size() == 1) directory.only = shared_segment(segments.front());
  if (segments.size() < 2) return;
  const std::span<SharedSegment> table = tables_[call_.sequence & 1];
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const SharedSegment now = shared_segment(segments[i]);
    if (table[i] == now) continue;  // peers still have the line in their caches
    table[i] = now;
  }
  directory.table = call_.memory.offset_of(reinterpret_cast<const std::byte*>(table.data()));
}

/// Copies the inputs into the payload. A rank that is alone in its node has no readers, and copies
/// nothing. The next payload is expected to be like this one.
void Announcement::fill_payload() {
  if (call_.memory.size() == 1) return;
  const bool in_slot = call_.route != Route::tiny && has_slot();
  if (in_slot) payload_slot_ = next_slot();
  std::byte* payload = payload_of(call_.memory.local_rank);
  Range written{call_.layout.total(), 0};
  call_.layout.for_each_segment([&](const FusedLayout::Part& part) {
    const Segment& own = call_.segment(part);
    if (!call_.is_source(own)) return;
    const std::size_t offset = offset_in_payload(part);
    const std::size_t bytes = own.count * size_of(own.dtype);
    std::memcpy(payload + offset, own.input, bytes);
    written = {std::min(written.begin, offset), std::max(written.end, offset + bytes)};
  });
  if (!in_slot || written.begin >= written.end) return;
  std::byte* const next = call_.memory.control().payloads[next_slot()];
  lines_to_write_.expect(next + written.begin, written.size());
}

CallClass Announcement::own_class() const {
  const std::uint32_t flags = memory_flags();
  return class_of(flags, (flags & kConsumed) != 0);
}

void Announcement::announce(std::uint32_t first_staged) noexcept {
  if (call_.route == Route::tiny || call_.route == Route::small) {
    fill_payload();
    return publish(kPayload);
  }
  std::uint32_t flags = memory_flags() | first_staged;
  if (is_carried(call_.route)) {
    flags |= kPayload;
    fill_payload();
  }
  // Ranks with data in other memory may choose another route; then the call is not inline, and
  // needs the directory.
  fill_directory();
  if (updates_.may_be_shared()) updates_.publish();
  publish(flags);
}

void Announcement::announce_refusal() noexcept { publish(kRefused); }

/// Publishes the announcement, and writes the call's record while the announcement is on its way.
void Announcement::publish(std::uint32_t flags) noexcept {
  const bool stop = stop_ != nullptr && stop_->load(std::memory_order_relaxed) != Stop::none;
  if (stop || asks_to_stop_.load(std::memory_order_relaxed)) flags |= kStopRequested;
  AnnounceLine& mine = call_.line(call_.memory.local_rank);
  mine.signature = call_.signature;
  mine.flags = static_cast<std::uint16_t>(flags | payload_slot_ << kPayloadSlotShift);
  announced_time_ = std::exchange(last_time_, {});
  mine.last_end = announced_time_.end;
  mine.last_duration = announced_time_.packed;
  mine.sequence.store(call_.sequence, std::memory_order_release);
  own_flags_ = flags;
  call_.waiter.wake();
  lines_to_write_.ask_for_some();
  waiting_since_ = 0;
  arrived_ = 0;
  last_ = call_.memory.local_rank;
  record();
}

void Announcement::record() noexcept {
  const Operation& operation = *call_.operation;
  call_.memory.control().calls.begin({.sequence = call_.sequence,
                                      .verb = verb_of(operation),
                                      .keys = static_cast<std::uint32_t>(operation.keys),
                                      .first_key = operation.first_key,
                                      .digest = operation.digest,
                                      .bytes = call_.layout.value_bytes(),
                                      .begun = begun_});
}

/// Tests whether all other ranks have announced the call. It does not read this rank's own line:
/// reading back what was written a moment ago, while the peers take the line over, would double the
/// time of a small call.
///
/// Peers are tested in turn, and a peer that has arrived is not tested again: the last one that was
/// found missing is the last one to arrive.
bool Announcement::all_announced() {
  const int self = call_.memory.local_rank;
  while (arrived_ < call_.memory.size() && (arrived_ == self || !missing(arrived_))) ++arrived_;
  if (arrived_ == call_.memory.size()) return true;
  if (waiting_since_ == 0) waiting_since_ = ticks();  // costs nothing, as this rank waits anyway
  last_ = arrived_;
  lines_to_write_.ask_for_some();
  return false;
}

bool Announcement::finds_all_alike() {
  if (own_flags_ != kPayload) return false;
  if (call_.memory.size() > 1) call_.turn_to(Activity::wait_for_ranks);
  if (!call_.waiter.soon([&] { return all_announced(); })) return false;
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    if (peer == call_.memory.local_rank) continue;
    const AnnounceLine& other = call_.line(peer);
    if ((other.flags & kFlagsOnly) != own_flags_ || !(other.signature == call_.signature))
      return false;
  }
  common_flags_ = any_flags_ = own_flags_;
  return node_agrees_ = true;
}

std::uint32_t Announcement::longest_time() const {
  LongestTime longest(announced_time_);
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    if (peer == call_.memory.local_rank) continue;
    const AnnounceLine& other = call_.line(peer);
    longest.add({other.last_end, other.last_duration});
  }
  return longest.get();
}

void Announcement::wait_for_all() {
  if (call_.memory.size() > 1) call_.turn_to(Activity::wait_for_ranks);
  call_.waiter.until([&] { return all_announced(); },
                     [&] { return call_.ranks_where([&](int peer) { return missing(peer); }); });
  node_agrees_ = (own_flags_ & kRefused) == 0;
  common_flags_ = own_flags_;
  any_flags_ = own_flags_;
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    if (peer == call_.memory.local_rank) continue;
    const AnnounceLine& other = call_.line(peer);
    common_flags_ &= other.flags;
    any_flags_ |= other.flags;
    if ((other.flags & kRefused) != 0 || !(other.signature == call_.signature))
      node_agrees_ = false;
  }
  if (node_agrees_ && !is_inline()) find_directories();
}

CallClass Announcement::call_class() const {
  return class_of(common_flags_, (any_flags_ & kConsumed) != 0);
}

CallClass Announcement::class_of(std::uint32_t flags, bool consumed) const {
  const auto location = [&] {
    if ((flags & kInputsShared) != 0) return Location::shared;
    return (flags & kInputsPrivate) != 0 ? Location::ordinary : Location::mixed;
  };
  return {.kind = call_.operation->kind,
          .inputs = location(),
          .in_place = (flags & kOutputsInPlace) != 0,
          .consumed = consumed,
          .shares_updates = (flags & kSharesUpdates) != 0,
          .apart = (flags & kInputsApart) != 0,
          .size = static_cast<std::uint8_t>(std::bit_width(call_.layout.total()) - 1)};
}

void Announcement::find_directories() {
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    const SegmentDirectory& theirs = call_.line(peer).directory;
    directories_[peer] =
        call_.layout.segments().size() == 1
            ? &theirs.only
            : reinterpret_cast<const SharedSegment*>(call_.memory.peers[peer].arena + theirs.table);
  }
}

}  // namespace tutti::collectives
