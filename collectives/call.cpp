// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::collectives {

namespace {

Signature sign(const Operation& operation, std::size_t bytes) {
  const auto kind = static_cast<std::uint64_t>(operation.kind);
  const auto reduce = static_cast<std::uint64_t>(operation.reduce);
  const auto check = static_cast<std::uint64_t>(operation.check);
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // so that no root hides a key's digest
  const std::uint64_t keys =
      operation.digest + static_cast<std::uint64_t>(operation.root) * kSpread;
  return {keys, bytes, kind | reduce << 8 | check << Signature::kCheckShift};
}

}  // namespace

Call::Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
           AllocateShared allocate_shared)
    : memory_(memory),
      topology_(topology),
      waiter_(waiter),
      tuning_(tuning),
      allocate_shared_(std::move(allocate_shared)),
      directories_(memory.peers.size()),
      sources_(memory.peers.size()),
      destinations_(2 * memory.peers.size()) {}

void Call::begin(const Operation& operation, bool wide, std::uint64_t begun) {
  operation_ = &operation;
  ++sequence_;
  step_ = sequence_ << kStepBits;
  layout_.assign(operation.segments, wide);
  signature_ = sign(operation, layout_.total());
  memory_.control().calls.begin({.sequence = sequence_,
                                 .kind = static_cast<std::uint32_t>(operation.kind),
                                 .keys = static_cast<std::uint32_t>(operation.keys),
                                 .first_key = operation.first_key,
                                 .digest = operation.digest,
                                 .bytes = layout_.value_bytes(),
                                 .begun = begun});
}

bool Call::is_source(const Segment& segment) const {
  return segment.source == kEveryRank || segment.source == topology_.rank;
}

bool Call::is_destination(const Segment& segment) const {
  return segment.destination == kEveryRank || segment.destination == topology_.rank;
}

// --- announcing ---------------------------------------------------------------------------------

/// What holds for all inputs and outputs that this rank has in the call.
std::uint32_t Call::memory_flags() const {
  std::uint32_t flags = kInputsShared | kInputsPrivate;
  if (operation_->consumer == nullptr) flags |= kOutputsInPlace;
  for (const Segment& segment : layout_.segments()) {
    if (segment.count == 0) continue;
    if (is_source(segment)) {
      flags &= ~(memory_.offset_of(segment.input) == kNotShared ? kInputsShared : kInputsPrivate);
    }
    const bool in_place =
        memory_.offset_of(segment.output) != kNotShared &&
        (segment.also == nullptr || memory_.offset_of(segment.also) != kNotShared);
    if (is_destination(segment) && !in_place) flags &= ~kOutputsInPlace;
  }
  return flags;
}

void Call::fill_directory() {
  const auto segments = layout_.segments();
  const auto shared_segment = [&](const Segment& segment) {
    return SharedSegment{memory_.offset_of(segment.input), memory_.offset_of(segment.output),
                         segment.also == nullptr ? kNotShared : memory_.offset_of(segment.also)};
  };
  SegmentDirectory& directory = line(memory_.local_rank).directory;
  if (segments.size() == 1) directory.only = shared_segment(segments.front());
  if (segments.size() < 2) return;
  std::span<SharedSegment>& table = tables_[sequence_ & 1];
  if (table.size() < segments.size()) {
    const std::size_t entries = std::bit_ceil(segments.size());
    table = {reinterpret_cast<SharedSegment*>(allocate_shared_(entries * sizeof(SharedSegment))),
             entries};
  }
  std::transform(segments.begin(), segments.end(), table.begin(), shared_segment);
  directory.table = memory_.offset_of(reinterpret_cast<const std::byte*>(table.data()));
}

void Call::fill_payload() {
  std::byte* payload = line(memory_.local_rank).payload;
  layout_.for_each_segment([&](const FlatLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own)) return;
    std::memcpy(payload + part.position, own.input, own.count * size_of(own.dtype));
  });
}

void Call::announce() {
  const std::size_t bytes = layout_.total();
  // A greeting is not packed, so that what is packed does not depend on what else is in the call;
  // and it would be summed over the node.
  const bool may_fit = operation_->packing == nullptr && !operation_->lanes_apart;
  const bool fits = may_fit && bytes <= tuning_.inline_shared_bytes;
  std::uint32_t flags = fits ? kPayload : memory_flags();
  if (may_fit && bytes <= tuning_.inline_private_bytes && (flags & kInputsShared) == 0) {
    flags |= kPayload;
  }
  if ((flags & kPayload) != 0) fill_payload();
  // Ranks in other memory may want it otherwise; then the call is not inline.
  if (!fits) fill_directory();
  publish(flags);
}

void Call::announce_refusal() { publish(kRefused); }

void Call::publish(std::uint32_t flags) {
  const bool stop = stop_ != nullptr && stop_->load(std::memory_order_relaxed) != Stop::none;
  if (stop || asks_to_stop_) flags |= kStopRequested;
  AnnounceLine& mine = line(memory_.local_rank);
  mine.signature = signature_;
  mine.flags = flags;
  mine.sequence.store(sequence_, std::memory_order_release);
  own_flags_ = flags;
  waiter_.wake();
  mark(Phase::announced);
}

/// Leaves this rank's own line alone: reading back what was written a moment ago, while the peers
/// take the line over, would double the time of a small call.
///
/// Peers are looked at in turn, and one that came meanwhile takes no further look: the last one
/// that was found missing is the last one to come.
void Call::wait_for_announcements() {
  if (memory_.size() > 1) turn_to(Activity::wait_for_ranks);
  const auto missing = [&](int peer) {
    return line(peer).sequence.load(std::memory_order_acquire) != sequence_;
  };
  const int self = memory_.local_rank;
  int arrived = 0;
  waiting_since_ = 0;
  last_ = self;
  const auto ready = [&] {
    while (arrived < memory_.size() && (arrived == self || !missing(arrived))) ++arrived;
    if (arrived == memory_.size()) return true;
    if (waiting_since_ == 0) waiting_since_ = ticks();  // costs a rank that waits nothing
    last_ = arrived;
    return false;
  };
  waiter_.until(ready, [&] { return ranks_where(missing); });
  node_agrees_ = (own_flags_ & kRefused) == 0;
  common_flags_ = own_flags_;
  any_flags_ = own_flags_;
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == self) continue;
    const AnnounceLine& other = line(peer);
    common_flags_ &= other.flags;
    any_flags_ |= other.flags;
    if ((other.flags & kRefused) != 0 || !(other.signature == signature_)) node_agrees_ = false;
  }
  if (node_agrees_ && !is_inline()) find_directories();
}

std::vector<int> Call::ranks_where(FunctionRef<bool(int)> peer_is_missing) const {
  std::vector<int> ranks;
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer_is_missing(peer)) ranks.push_back(topology_.local_ranks()[peer]);
  }
  return ranks;
}

// --- steps --------------------------------------------------------------------------------------

void Call::signal() {
  ++step_;
  memory_.control().step.store(step_, std::memory_order_release);
  waiter_.wake();
}

void Call::wait_for_steps(int first, int count) {
  const auto missing = [&](int peer) {
    return memory_.peers[peer].control().step.load(std::memory_order_acquire) < step_;
  };
  const int end = std::min(first + count, memory_.size());
  int arrived = first;
  const auto ready = [&] {
    while (arrived < end && (arrived == memory_.local_rank || !missing(arrived))) ++arrived;
    return arrived == end;
  };
  waiter_.until(ready, [&] { return ranks_where(missing); });
}

/// A group's first rank passes on that the whole group is there.
void Call::wait_for_groups() {
  const int group = tuning_.wait_group;
  const int leader = memory_.local_rank / group * group;
  if (memory_.local_rank == leader) {
    wait_for_steps(leader, group);
    memory_.control().group_step.store(step_, std::memory_order_release);
    waiter_.wake();
  }
  const auto missing = [&](int peer) {
    const auto& progress = peer % group == 0 ? memory_.peers[peer].control().group_step
                                             : memory_.peers[peer].control().step;
    return progress.load(std::memory_order_acquire) < step_;
  };
  int arrived = 0;
  const auto ready = [&] {
    while (arrived < memory_.size() && !missing(arrived)) arrived += group;
    return arrived >= memory_.size();
  };
  waiter_.until(ready, [&] { return ranks_where(missing); });
}

void Call::wait_for_all() {
  turn_to(Activity::wait_in_node);
  if (tuning_.wait_group >= memory_.size()) return wait_for_steps(0, memory_.size());
  wait_for_groups();
}

void Call::wait_for(int peer, std::uint64_t step) {
  const std::uint64_t target = (sequence_ << kStepBits) + step;
  const auto& progress = memory_.peers[peer].control().step;
  waiter_.until([&] { return progress.load(std::memory_order_acquire) >= target; },
                [&] { return std::vector<int>{topology_.local_ranks()[peer]}; });
}

}  // namespace tutti::collectives
