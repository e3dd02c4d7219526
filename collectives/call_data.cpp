// SPDX-License-Identifier: Apache-2.0
// The verbs of Call that move data: where each rank's elements are, and what is done with them.
#include <cstring>

#include "collectives/call.hpp"

namespace tutti::collectives {

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

void Call::stage(Range chunk, int slot, Stores stores) const {
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
  if (stores == Stores::streaming) streaming_fence();
}

void Call::reduce_to_all(Range range, const Sources& sources, Stores stores) {
  turn_to(Activity::reduce);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    gather_outputs(part, sources.chunk, sources.slot);
    reduce(to_output(part.segment), sources_, destinations_, part.count, stores);
  });
  if (stores == Stores::streaming) streaming_fence();
}

/// One source of the output's type needs no reduction before it is consumed, unless it is what the
/// consumer writes to.
void Call::reduce_part_to_self(const FusedLayout::Part& part, const Reduction& reduction,
                               std::span<const std::byte* const> sources, std::byte* scratch,
                               Stores stores) const {
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
  reduce(reduction, sources, std::span(&scratch, 1), part.count, Stores::cached);
  consumer->consume(part.segment, part.first, part.count, scratch);
}

void Call::reduce_to_self(Range range, const Sources& sources, Stores stores) {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  std::byte* mine = memory_.self().arena + memory_.control().result[sources.slot];
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    reduce_part_to_self(part, to_output(part.segment), sources_,
                        mine + layout_.slot_offset(part, sources.chunk), stores);
  });
  if (stores == Stores::streaming) streaming_fence();
}

void Call::reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer) {
  turn_to(Activity::reduce);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    std::byte* to = buffer + (part.position - range.begin);
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
  });
}

void Call::spread_to_all(Range range, const std::byte* buffer, Range chunk, int slot) {
  turn_to(Activity::copy_out);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_outputs(part, chunk, slot);
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce(narrow, std::span(&from, 1), destinations_, part.count, Stores::cached);
  });
}

void Call::deliver(Range chunk, int slot, Stores stores) const {
  turn_to(operation_->consumer == nullptr ? Activity::copy_out : Activity::update);
  std::byte* mine = memory_.self().arena + memory_.control().result[slot];
  layout_.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const std::byte* from = mine + layout_.slot_offset(part, chunk);
    reduce_part_to_self(part, to_output(part.segment), std::span(&from, 1), nullptr, stores);
  });
  if (stores == Stores::streaming) streaming_fence();
}

// --- small calls --------------------------------------------------------------------------------

void Call::reduce_payloads_to_self() {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    gather_payloads(part, 0, memory_.size());
    reduce_part_to_self(part, to_output(part.segment), sources_, scratch, Stores::cached);
  });
}

void Call::reduce_payloads_to_buffer(int first, int count, std::byte* buffer) {
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    if (segment(part).source != kEveryRank && topology_.local_rank_of(segment(part).source) < 0)
      return;
    gather_payloads(part, first, count);
    std::byte* to = buffer + part.position;
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
  });
}

void Call::deliver_wire(const std::byte* buffer) const {
  turn_to(operation_->consumer == nullptr ? Activity::copy_out : Activity::update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    const std::byte* from = buffer + part.position;
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce_part_to_self(part, narrow, std::span(&from, 1), scratch, Stores::cached);
  });
}

}  // namespace tutti::collectives
