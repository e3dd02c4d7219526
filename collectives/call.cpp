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

void Call::fill_table(std::uint32_t& flags) {
  const auto segments = layout_.segments();
  std::span<SharedSegment>& table = tables_[sequence_ & 1];
  if (segments.size() > 1 && table.size() < segments.size()) {
    const std::size_t entries = std::bit_ceil(segments.size());
    table = {reinterpret_cast<SharedSegment*>(allocate_shared_(entries * sizeof(SharedSegment))),
             entries};
  }
  AnnounceLine& mine = line(memory_.local_rank);
  flags |= kInputsShared | kInputsPrivate;
  if (operation_->consumer == nullptr) flags |= kOutputsInPlace;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    SharedSegment& entry = segments.size() > 1 ? table[s] : mine.only;
    entry = {memory_.offset_of(segments[s].input), memory_.offset_of(segments[s].output)};
    if (segments[s].count == 0) continue;
    if (is_source(segments[s])) {
      flags &= ~(entry.input == kNotShared ? kInputsShared : kInputsPrivate);
    }
    if (is_destination(segments[s]) && entry.output == kNotShared) flags &= ~kOutputsInPlace;
  }
  if (segments.size() > 1) {
    mine.table = memory_.offset_of(reinterpret_cast<const std::byte*>(table.data()));
  }
}

void Call::announce(bool refused, bool with_payload) {
  AnnounceLine& mine = line(memory_.local_rank);
  mine.signature = signature_;
  std::uint32_t flags = 0;
  if (refused) flags |= kRefused;
  if (!refused && with_payload) {
    layout_.for_each_part({0, layout_.total()}, [&](const FlatLayout::Part& part) {
      const Segment& own = segment(part);
      if (!is_source(own)) return;
      std::memcpy(mine.payload + part.position, own.input, own.count * size_of(own.dtype));
    });
  } else if (!refused) {
    fill_table(flags);
  }
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
  for (int peer = 0; peer < memory_.size(); ++peer) {
    const AnnounceLine& other = line(peer);
    common_flags_ &= other.flags;
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
