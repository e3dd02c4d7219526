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

Verb verb_of(const Operation& operation) noexcept {
  if (operation.verb != Verb::of_kind) return operation.verb;
  switch (operation.kind) {
    case Kind::barrier:
      return Verb::barrier;
    case Kind::agreement:
      return Verb::agree;
    case Kind::allreduce:
      return Verb::allreduce;
    case Kind::broadcast:
      return Verb::broadcast;
    case Kind::reduce:
      return Verb::reduce;
    case Kind::reduce_scatter:
      return Verb::reduce_scatter;
    case Kind::allgather:
      return Verb::allgather;
    case Kind::refusal:
      return Verb::refused_call;
  }
  return Verb::of_kind;
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

void Call::prepare(const Operation& operation, bool wide) {
  operation_ = &operation;
  layout_.assign(operation.segments, wide);
  signature_ = sign(operation, layout_.total());
  if (!fits_inline()) make_room_for_directory(sequence_ + 1);
}

void Call::begin(std::uint64_t begun) noexcept {
  ++sequence_;
  step_ = sequence_ << kStepBits;
  const Operation& operation = *operation_;
  memory_.control().calls.begin({.sequence = sequence_,
                                 .verb = verb_of(operation),
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
    const bool in_place = memory_.offset_of(segment.output) != kNotShared &&
                          (segment.second_output == nullptr ||
                           memory_.offset_of(segment.second_output) != kNotShared);
    if (is_destination(segment) && !in_place) flags &= ~kOutputsInPlace;
  }
  return flags;
}

/// The table of the line that the call will be announced in. Peers have read what the call before
/// the last one wrote there: see AnnounceLine.
void Call::make_room_for_directory(std::uint64_t sequence) {
  const std::size_t segments = layout_.segments().size();
  std::span<SharedSegment>& table = tables_[sequence & 1];
  if (segments < 2 || segments <= table.size()) return;
  const std::size_t entries = std::bit_ceil(segments);
  table = {reinterpret_cast<SharedSegment*>(allocate_shared_(entries * sizeof(SharedSegment))),
           entries};
}

void Call::fill_directory() {
  const auto segments = layout_.segments();
  const auto shared_segment = [&](const Segment& segment) {
    return SharedSegment{
        memory_.offset_of(segment.input), memory_.offset_of(segment.output),
        segment.second_output == nullptr ? kNotShared : memory_.offset_of(segment.second_output)};
  };
  SegmentDirectory& directory = line(memory_.local_rank).directory;
  if (segments.size() == 1) directory.only = shared_segment(segments.front());
  if (segments.size() < 2) return;
  const std::span<SharedSegment> table = tables_[sequence_ & 1];
  std::transform(segments.begin(), segments.end(), table.begin(), shared_segment);
  directory.table = memory_.offset_of(reinterpret_cast<const std::byte*>(table.data()));
}

void Call::fill_payload() {
  std::byte* payload = line(memory_.local_rank).payload;
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own)) return;
    std::memcpy(payload + part.position, own.input, own.count * size_of(own.dtype));
  });
}

/// A handshake is not packed, so that what is packed does not depend on what else is in the call;
/// and it would be summed over the node.
bool Call::may_be_inline() const {
  return operation_->packing == nullptr && !operation_->lanes_apart;
}

/// The data travels in the announcement, wherever it lies.
bool Call::fits_inline() const {
  return may_be_inline() && layout_.total() <= tuning_.inline_shared_bytes;
}

void Call::announce() noexcept {
  const bool fits = fits_inline();
  std::uint32_t flags = fits ? kPayload : memory_flags();
  const bool fits_if_private = may_be_inline() && layout_.total() <= tuning_.inline_private_bytes;
  if (fits_if_private && (flags & kInputsShared) == 0) flags |= kPayload;
  if ((flags & kPayload) != 0) fill_payload();
  // Ranks in other memory may want it otherwise; then the call is not inline.
  if (!fits) fill_directory();
  publish(flags);
}

void Call::announce_refusal() noexcept { publish(kRefused); }

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

// --- addresses ----------------------------------------------------------------------------------

void Call::find_directories() {
  for (int peer = 0; peer < memory_.size(); ++peer) {
    const SegmentDirectory& theirs = line(peer).directory;
    directories_[peer] =
        layout_.segments().size() == 1
            ? &theirs.only
            : reinterpret_cast<const SharedSegment*>(memory_.peers[peer].arena + theirs.table);
  }
}

template <class Address>
void Call::gather(const Segment& segment, int first, int count, Address address) {
  if (segment.source != kEveryRank) {
    first = topology_.local_rank_of(segment.source);
    count = 1;
  }
  sources_.resize(count);
  for (int i = 0; i < count; ++i) sources_[i] = address(first + i);
}

void Call::gather_inputs(const FusedLayout::Part& part, const Sources& sources) {
  const std::size_t offset = part.first * size_of(segment(part).dtype);
  gather(segment(part), sources.first, sources.count, [&](int peer) -> const std::byte* {
    const Peer& other = memory_.peers[peer];
    const std::uint64_t input = shared(peer, part.segment).input;
    if (input != kNotShared) return other.arena + input + offset;
    return other.arena + other.control().stage[sources.slot] +
           layout_.slot_offset(part, sources.chunk);
  });
}

/// This rank's own elements come from its input, not from its line: see wait_for_announcements().
void Call::gather_payloads(const FusedLayout::Part& part, int first, int count) {
  gather(segment(part), first, count, [&](int peer) -> const std::byte* {
    return peer == memory_.local_rank ? segment(part).input : line(peer).payload + part.position;
  });
}

/// Where a local rank wants a part: both its outputs in place, or its slot.
void Call::add_destinations(const FusedLayout::Part& part, int peer, Range chunk, int slot) {
  const Peer& other = memory_.peers[peer];
  if (!in_place()) {
    destinations_.push_back(other.arena + other.control().result[slot] +
                            layout_.slot_offset(part, chunk));
    return;
  }
  const std::size_t offset = part.first * size_of(segment(part).dtype);
  const SharedSegment& theirs = shared(peer, part.segment);
  destinations_.push_back(other.arena + theirs.output + offset);
  if (theirs.second_output != kNotShared)
    destinations_.push_back(other.arena + theirs.second_output + offset);
}

void Call::gather_outputs(const FusedLayout::Part& part, Range chunk, int slot) {
  destinations_.clear();
  if (operation_->lanes_apart) {
    add_destinations(part, memory_.local_rank, chunk, slot);
  } else if (segment(part).destination == kEveryRank) {
    for (int peer = 0; peer < memory_.size(); ++peer) add_destinations(part, peer, chunk, slot);
  } else if (const int peer = topology_.local_rank_of(segment(part).destination); peer >= 0) {
    add_destinations(part, peer, chunk, slot);
  }
}

Reduction Call::to_output(std::size_t segment) const {
  const DType dtype = layout_.segments()[segment].dtype;
  return {operation_->reduce, dtype, dtype};
}

Reduction Call::to_wire(std::size_t segment) const {
  return {operation_->reduce, layout_.segments()[segment].dtype, layout_.wire(segment)};
}

// --- moving data --------------------------------------------------------------------------------

void Call::stage(Range chunk, int slot, WritePolicy stores) const {
  turn_to(Activity::copy_in);
  std::byte* mine = memory_.self().arena + memory_.control().stage[slot];
  layout_.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own) || shared(memory_.local_rank, part.segment).input != kNotShared) return;
    const std::size_t width = size_of(own.dtype);
    const std::byte* from = own.input + part.first * width;
    std::byte* to = mine + layout_.slot_offset(part, chunk);
    reduce(to_output(part.segment), std::span(&from, 1), std::span(&to, 1), part.count, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void Call::reduce_to_all(Range range, const Sources& sources, WritePolicy stores) {
  turn_to(Activity::reduce);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    gather_outputs(part, sources.chunk, sources.slot);
    reduce(to_output(part.segment), sources_, destinations_, part.count, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

/// One source of the output's type needs no reduction before it is consumed, unless it is what the
/// consumer writes to.
void Call::reduce_part_to_self(const FusedLayout::Part& part, const Reduction& reduction,
                               std::span<const std::byte* const> sources, std::byte* scratch,
                               WritePolicy stores) const {
  if (!is_destination(segment(part))) return;
  const std::size_t offset = part.first * size_of(segment(part).dtype);
  std::byte* outputs[] = {segment(part).output + offset, nullptr};
  Consumer* consumer = operation_->consumer;
  if (consumer == nullptr) {
    const bool two = segment(part).second_output != nullptr;
    if (two) outputs[1] = segment(part).second_output + offset;
    reduce(reduction, sources, std::span(outputs, two ? 2 : 1), part.count, stores);
    return;
  }
  const bool as_it_is = sources.size() == 1 && reduction.from == reduction.to;
  if (as_it_is && sources.front() != outputs[0]) {
    consumer->consume(part.segment, part.first, part.count, sources.front());
    return;
  }
  reduce(reduction, sources, std::span(&scratch, 1), part.count, WritePolicy::cached);
  consumer->consume(part.segment, part.first, part.count, scratch);
}

void Call::reduce_to_self(Range range, const Sources& sources, WritePolicy stores) {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  std::byte* mine = memory_.self().arena + memory_.control().result[sources.slot];
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    reduce_part_to_self(part, to_output(part.segment), sources_,
                        mine + layout_.slot_offset(part, sources.chunk), stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void Call::reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer) {
  turn_to(Activity::reduce);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    std::byte* to = buffer + (part.position - range.begin);
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, WritePolicy::cached);
  });
}

void Call::spread_to_all(Range range, const std::byte* buffer, Range chunk, int slot) {
  turn_to(Activity::copy_out);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_outputs(part, chunk, slot);
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce(narrow, std::span(&from, 1), destinations_, part.count, WritePolicy::cached);
  });
}

void Call::deliver(Range chunk, int slot, WritePolicy stores) const {
  turn_to(operation_->consumer == nullptr ? Activity::copy_out : Activity::update);
  std::byte* mine = memory_.self().arena + memory_.control().result[slot];
  layout_.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const std::byte* from = mine + layout_.slot_offset(part, chunk);
    reduce_part_to_self(part, to_output(part.segment), std::span(&from, 1), nullptr, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

// --- small calls --------------------------------------------------------------------------------

void Call::reduce_payloads_to_self() {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    gather_payloads(part, 0, memory_.size());
    reduce_part_to_self(part, to_output(part.segment), sources_, scratch, WritePolicy::cached);
  });
}

void Call::reduce_payloads_to_buffer(int first, int count, std::byte* buffer) {
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    if (segment(part).source != kEveryRank && topology_.local_rank_of(segment(part).source) < 0)
      return;
    gather_payloads(part, first, count);
    std::byte* to = buffer + part.position;
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, WritePolicy::cached);
  });
}

void Call::deliver_wire(const std::byte* buffer) const {
  turn_to(operation_->consumer == nullptr ? Activity::copy_out : Activity::update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    const std::byte* from = buffer + part.position;
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce_part_to_self(part, narrow, std::span(&from, 1), scratch, WritePolicy::cached);
  });
}

}  // namespace tutti::collectives
