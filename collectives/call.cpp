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
  const auto root = static_cast<std::uint64_t>(operation.root);
  return {operation.digest, bytes, kind | reduce << 8 | root << 16};
}

}  // namespace

Call::Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter,
           AllocateShared allocate_shared)
    : memory_(memory),
      topology_(topology),
      waiter_(waiter),
      allocate_shared_(std::move(allocate_shared)),
      sources_(memory.peers.size()),
      destinations_(memory.peers.size()) {}

void Call::begin(const Operation& operation, bool wide) {
  operation_ = &operation;
  ++sequence_;
  step_ = sequence_ << kStepBits;
  layout_.assign(operation.segments, wide);
  signature_ = sign(operation, layout_.total());
}

int Call::local_rank_of(int rank) const {
  const auto& ranks = topology_.local_ranks();
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found != ranks.end() && *found == rank ? static_cast<int>(found - ranks.begin()) : -1;
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
    if (is_destination(segment) && memory_.offset_of(segment.output) == kNotShared) {
      flags &= ~kOutputsInPlace;
    }
  }
  return flags;
}

void Call::fill_directory() {
  const auto segments = layout_.segments();
  const auto shared_segment = [&](const Segment& segment) {
    return SharedSegment{memory_.offset_of(segment.input), memory_.offset_of(segment.output)};
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
  layout_.for_each_part({0, layout_.total()}, [&](const FlatLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own)) return;
    std::memcpy(payload + part.position, own.input, own.count * size_of(own.dtype));
  });
}

void Call::announce(std::size_t always_inline_bytes) {
  std::uint32_t flags = memory_flags();
  const std::size_t bytes = layout_.total();
  if (bytes <= always_inline_bytes || (bytes <= kInlineBytes && (flags & kInputsShared) == 0)) {
    fill_payload();
    flags |= kPayload;
  } else {
    fill_directory();
  }
  publish(flags);
}

void Call::announce_refusal() { publish(kRefused); }

void Call::publish(std::uint32_t flags) {
  AnnounceLine& mine = line(memory_.local_rank);
  mine.signature = signature_;
  mine.flags = flags;
  mine.sequence.store(sequence_, std::memory_order_release);
  waiter_.wake();
}

void Call::wait_for_announcements() {
  const auto missing = [&](int peer) {
    return line(peer).sequence.load(std::memory_order_relaxed) != sequence_;
  };
  int arrived = 0;
  const auto ready = [&] {
    while (arrived < memory_.size() &&
           line(arrived).sequence.load(std::memory_order_acquire) == sequence_) {
      ++arrived;
    }
    return arrived == memory_.size();
  };
  waiter_.until(ready, [&] { return ranks_where(missing); });
  node_agrees_ = true;
  common_flags_ = ~std::uint32_t{0};
  any_flags_ = 0;
  for (int peer = 0; peer < memory_.size(); ++peer) {
    const AnnounceLine& other = line(peer);
    common_flags_ &= other.flags;
    any_flags_ |= other.flags;
    if ((other.flags & kRefused) != 0 || !(other.signature == signature_)) node_agrees_ = false;
  }
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

void Call::wait_for_all() {
  const auto missing = [&](int peer) {
    return memory_.peers[peer].control().step.load(std::memory_order_acquire) < step_;
  };
  int arrived = 0;
  const auto ready = [&] {
    while (arrived < memory_.size() && !missing(arrived)) ++arrived;
    return arrived == memory_.size();
  };
  waiter_.until(ready, [&] { return ranks_where(missing); });
}

void Call::wait_for(int peer, std::uint64_t step) {
  const std::uint64_t target = (sequence_ << kStepBits) + step;
  const auto& progress = memory_.peers[peer].control().step;
  waiter_.until([&] { return progress.load(std::memory_order_acquire) >= target; },
                [&] { return std::vector<int>{topology_.local_ranks()[peer]}; });
}

}  // namespace tutti::collectives
