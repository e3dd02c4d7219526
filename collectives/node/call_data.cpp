// SPDX-License-Identifier: Apache-2.0
// The verbs of a call that move data: where each rank's elements lie, and the reductions over them.
#include <algorithm>
#include <cstring>

#include "collectives/job/shifted.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

namespace {

/// On the stack, for what is summed or widened on its way to a consumer.
constexpr std::size_t kScratchBytes = std::size_t{32} << 10;

}  // namespace

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
    if (peer == memory_.local_rank || memory_.is_mapped(input)) return other.arena + input + offset;
    if (sources.fetched.size() > 0) {
      return fetched_from(peer) + layout_.slot_offset(part, sources.fetched);
    }
    return other.arena + other.control().stage[sources.slot] +
           layout_.slot_offset(part, sources.chunk);
  });
}

/// This rank's own elements come from its input, not from its line: see wait_for_announcements().
void Call::gather_payloads(const FusedLayout::Part& part, int first, int count) {
  gather(segment(part), first, count, [&](int peer) -> const std::byte* {
    if (peer != memory_.local_rank) return payload_of(peer) + place_in_payload(part);
    return segment(part).input + part.first * size_of(segment(part).dtype);
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
  if (theirs.second_output != kNoBuffer)
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
  return {combining(operation_->reduce), layout_.segments()[segment].dtype, layout_.wire(segment)};
}

// --- fetching -----------------------------------------------------------------------------------

bool Call::is_fetched(const Segment& segment, std::size_t index, int peer) const {
  const bool is_source =
      segment.source == kEveryRank || topology_.local_rank_of(segment.source) == peer;
  return is_source && !memory_.is_mapped(shared(peer, index).input);
}

std::byte* Call::fetched_from(int peer) const {
  const int place = peer < memory_.local_rank ? peer : peer - 1;
  return fetch_buffer_.get() + static_cast<std::size_t>(place) * fetch_bytes_;
}

void Call::fetch(Range chunk, bool own_only) {
  turn_to(Activity::copy_in);
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == memory_.local_rank) continue;
    pieces_.clear();
    layout_.for_each_part(chunk, [&](const FusedLayout::Part& part) {
      const Segment& own = segment(part);
      if (own_only && !is_destination(own)) return;
      if (!is_fetched(own, part.segment, peer)) return;
      const std::size_t width = size_of(own.dtype);
      pieces_.push_back({fetched_from(peer) + layout_.slot_offset(part, chunk),
                         memory_.peers[peer].control().address + shared(peer, part.segment).input +
                             part.first * width,
                         part.count * width});
    });
    if (!pieces_.empty()) memory_.reader->read(peer, pieces_);
  }
}

void Call::fetch_results(Range range, int peer) {
  turn_to(Activity::copy_out);
  pieces_.clear();
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.first * size_of(segment(part).dtype);
    pieces_.push_back(
        {segment(part).output + offset,
         memory_.peers[peer].control().address + shared(peer, part.segment).output + offset,
         part.count * size_of(segment(part).dtype)});
  });
  if (pieces_.empty()) return;
  memory_.reader->read(peer, pieces_);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    std::byte* const second = segment(part).second_output;
    if (second == nullptr) return;
    const std::size_t width = size_of(segment(part).dtype);
    std::memcpy(second + part.first * width, segment(part).output + part.first * width,
                part.count * width);
  });
}

/// Pieces are small enough that a failure is heard of between them. Begins with the segments behind
/// this rank's place, so that not all ranks read from the same peer at first.
void Call::copy_to_self(WritePolicy stores) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  turn_to(Activity::copy_out);
  const auto segments = layout_.segments();
  const auto place = static_cast<std::size_t>(memory_.local_rank);
  const std::size_t start = place * segments.size() / memory_.peers.size();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t index = (start + i) % segments.size();
    if (!is_destination(segments[index])) continue;
    const std::size_t width = size_of(segments[index].dtype);
    const std::size_t most = kPieceBytes / width;
    for (std::size_t first = 0; first < segments[index].count; first += most) {
      waiter_.check_failure();
      copy_part(index, first, std::min(most, segments[index].count - first), stores);
    }
  }
  if (stores == WritePolicy::streaming) streaming_fence();
}

void Call::copy_part(std::size_t index, std::size_t first, std::size_t count, WritePolicy stores) {
  const Segment& own = layout_.segments()[index];
  const int peer = topology_.local_rank_of(own.source);
  const std::size_t offset = first * size_of(own.dtype);
  const std::size_t bytes = count * size_of(own.dtype);
  const Peer& other = memory_.peers[static_cast<std::size_t>(peer)];
  const std::uint64_t input = shared(peer, index).input;
  if (peer == memory_.local_rank || memory_.is_mapped(input)) {
    const std::byte* const from = other.arena + input + offset;
    std::byte* outputs[] = {own.output + offset, nullptr};
    if (own.second_output != nullptr) outputs[1] = own.second_output + offset;
    workers_.reduce(to_output(index), std::span(&from, 1),
                    std::span(outputs, own.second_output != nullptr ? 2 : 1), count, stores);
    return;
  }
  const PeerReader::Piece piece{own.output + offset, other.control().address + input + offset,
                                bytes};
  memory_.reader->read(peer, std::span(&piece, 1));
  if (own.second_output != nullptr) {
    std::memcpy(own.second_output + offset, own.output + offset, bytes);
  }
}

// --- moving data --------------------------------------------------------------------------------

void Call::stage(Range chunk, int slot, WritePolicy stores) const {
  turn_to(Activity::copy_in);
  std::byte* mine = memory_.self().arena + memory_.control().stage[slot];
  layout_.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own) || memory_.is_mapped(memory_.offset_of(own.input))) return;
    const std::size_t width = size_of(own.dtype);
    const std::byte* from = own.input + part.first * width;
    std::byte* to = mine + layout_.slot_offset(part, chunk);
    workers_.reduce(to_output(part.segment), std::span(&from, 1), std::span(&to, 1), part.count,
                    stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void Call::reduce_to_all(Range range, const Sources& sources, WritePolicy stores) {
  turn_to(Activity::reduce);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    gather_outputs(part, sources.chunk, sources.slot);
    workers_.reduce(to_output(part.segment), sources_, destinations_, part.count, stores);
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
  if (operation_->consumer == nullptr) {
    const bool two = segment(part).second_output != nullptr;
    if (two) outputs[1] = segment(part).second_output + offset;
    workers_.reduce(reduction, sources, std::span(outputs, two ? 2 : 1), part.count, stores);
    return;
  }
  const bool as_it_is = sources.size() == 1 && reduction.from == reduction.to;
  if (as_it_is && sources.front() != outputs[0]) {
    return consume_by_all(part, sources.front());
  }
  workers_.reduce(reduction, sources, std::span(&scratch, 1), part.count, WritePolicy::cached);
  consume_by_all(part, scratch);
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
    workers_.reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count,
                    WritePolicy::cached);
  });
}

bool Call::is_carried_as_it_is(const FusedLayout::Part& part) const {
  return is_alone_in_lane() && layout_.wire(part.segment) == segment(part).dtype;
}

const std::byte* Call::input_as_carried(const FusedLayout::Part& part) const {
  const Segment& own = segment(part);
  if (!is_source(own) || !is_carried_as_it_is(part)) return nullptr;
  return own.input + part.first * size_of(own.dtype);
}

/// The part that a range is, if it is one of one segment without padding behind it.
std::optional<FusedLayout::Part> Call::only_part(Range range) const {
  std::optional<FusedLayout::Part> only;
  std::size_t bytes = 0;
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    only = part;
    bytes = part.count * size_of(layout_.wire(part.segment));
  });
  if (bytes != range.size()) only.reset();
  return only;
}

const std::byte* Call::input_to_send(Range range) const {
  const auto part = only_part(range);
  const std::byte* const from = part ? input_as_carried(*part) : nullptr;
  return from != nullptr && memory_.is_in_arena(from) ? from : nullptr;
}

std::byte* Call::output_to_fill(Range range, bool over_input) const {
  const auto part = only_part(range);
  if (!part || operation_->consumer != nullptr || !is_carried_as_it_is(*part)) return nullptr;
  const Segment& own = segment(*part);
  if (!is_destination(own) || own.second_output != nullptr) return nullptr;
  if (is_overwritten(own) && !(over_input && own.output == own.input)) return nullptr;
  std::byte* const to = own.output + part->first * size_of(own.dtype);
  return memory_.is_in_arena(to) ? to : nullptr;
}

void Call::spread_to_all(Range range, const std::byte* buffer, Range chunk, int slot) {
  turn_to(Activity::copy_out);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_outputs(part, chunk, slot);
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    workers_.reduce(narrow, std::span(&from, 1), destinations_, part.count, WritePolicy::cached);
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

void Call::deliver_wire(Range range, const std::byte* buffer, std::byte* scratch) const {
  turn_to(operation_->consumer == nullptr ? Activity::copy_out : Activity::update);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce_part_to_self(part, narrow, std::span(&from, 1), scratch, WritePolicy::cached);
  });
}

void Call::deliver_own(Range range, const std::byte* buffer, int slot) const {
  deliver_wire(range, buffer, memory_.self().arena + memory_.control().result[slot]);
}

// --- the threads of a rank ----------------------------------------------------------------------

void Call::consume_by_all(const FusedLayout::Part& part, const std::byte* reduced) const {
  Consumer& consumer = *operation_->consumer;
  const std::size_t width = size_of(segment(part).dtype);
  if (!workers_.splits(part.count * width) || !consumer.takes_any_order()) {
    return consumer.consume(part.segment, part.first, part.count, reduced);
  }
  workers_.over(part.count, width, [&](std::size_t first, std::size_t now) {
    consumer.consume(part.segment, part.first + first, now, reduced + first * width);
  });
}

/// By one thread. A sum for a consumer goes through the first-level cache.
void Call::reduce_part_alone(const FusedLayout::Part& part, WritePolicy stores) const {
  const Segment& own = segment(part);
  const std::size_t width = size_of(own.dtype);
  const std::span inputs = own.inputs.empty() ? std::span(&own.input, 1) : own.inputs;
  Shifted sources(inputs, part.first * width);
  std::byte* const output = own.output + part.first * width;
  const Reduction reduction = to_output(part.segment);
  Consumer* const consumer = operation_->consumer;
  if (consumer == nullptr) {
    std::byte* outputs[] = {output, nullptr};
    const bool two = own.second_output != nullptr;
    if (two) outputs[1] = own.second_output + part.first * width;
    return reduce(reduction, sources.all(), std::span(outputs, two ? 2 : 1), part.count, stores);
  }
  if (inputs.size() == 1 && sources.all().front() != output) {
    return consumer->consume(part.segment, part.first, part.count, sources.all().front());
  }
  constexpr std::size_t kTileBytes = std::size_t{16} << 10;
  alignas(FusedLayout::kAlignment) std::byte tile[kTileBytes];
  std::byte* const to = tile;
  for (std::size_t done = 0, now = 0; done < part.count; done += now) {
    now = std::min(part.count - done, kTileBytes / width);
    Shifted from(sources.all(), done * width);
    reduce(reduction, from.all(), std::span(&to, 1), now, WritePolicy::cached);
    consumer->consume(part.segment, part.first + done, now, tile);
  }
}

void Call::reduce_alone(WritePolicy stores) const {
  const Consumer* consumer = operation_->consumer;
  turn_to(consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  const auto take = [&](std::size_t first, std::size_t lines) {
    const Range range{first * FusedLayout::kAlignment, (first + lines) * FusedLayout::kAlignment};
    layout_.for_each_part(range,
                          [&](const FusedLayout::Part& part) { reduce_part_alone(part, stores); });
  };
  const std::size_t lines = layout_.total() / FusedLayout::kAlignment;
  if (consumer != nullptr && !consumer->takes_any_order()) {
    take(0, lines);
  } else {
    workers_.over(lines, FusedLayout::kAlignment, take);
  }
  if (stores == WritePolicy::streaming) streaming_fence();
}

// --- small calls --------------------------------------------------------------------------------

void Call::for_each_range(std::size_t most, FunctionRef<void(Range)> visit) const {
  for (std::size_t begin = 0; begin < layout_.total(); begin += most) {
    visit({begin, std::min(begin + most, layout_.total())});
  }
}

void Call::reduce_payloads_to_self() {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes, [&](Range range) {
    layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
      gather_payloads(part, 0, memory_.size());
      reduce_part_to_self(part, to_output(part.segment), sources_, scratch, WritePolicy::cached);
    });
  });
}

bool Call::sums_one_segment() const {
  const auto segments = layout_.segments();
  return segments.size() == 1 && segments.front().source == kEveryRank &&
         segments.front().destination == kEveryRank && segments.front().second_output == nullptr &&
         operation_->consumer == nullptr;
}

/// Without the kernels, whose way to so few bytes is longer than that of the bytes.
void Call::copy_tiny_to_self() const {
  turn_to(Activity::copy_out);
  const auto segments = layout_.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& own = segments[i];
    if (own.count == 0 || !is_destination(own)) continue;
    const int peer = topology_.local_rank_of(own.source);
    const std::byte* const from = peer == memory_.local_rank
                                      ? own.input
                                      : line(peer).directory.tiny_payload + tiny_places_[i];
    const std::size_t bytes = own.count * size_of(own.dtype);
    std::memmove(own.output, from, bytes);  // in place, it is the same memory
    if (own.second_output != nullptr) std::memcpy(own.second_output, own.output, bytes);
  }
}

bool Call::reduce_tiny_to_self() {
  if (!tiny_) return false;
  if (operation_->consumer == nullptr && has_single_sources(layout_)) {
    copy_tiny_to_self();
    return true;
  }
  if (!sums_one_segment()) return false;
  turn_to(Activity::reduce);
  const Segment& only = layout_.segments().front();
  sources_.resize(memory_.peers.size());
  for (int peer = 0; peer < memory_.size(); ++peer) {
    sources_[peer] = peer == memory_.local_rank ? only.input : line(peer).directory.tiny_payload;
  }
  reduce({operation_->reduce, only.dtype, only.dtype}, sources_, std::span(&only.output, 1),
         only.count, WritePolicy::cached);
  return true;
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

void Call::sum_payloads(Range range, std::byte* buffer, bool carried_too) {
  turn_to(Activity::copy_in);
  layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
    if (!carried_too && input_as_carried(part) != nullptr) return;
    gather_payloads(part, 0, memory_.size());
    std::byte* to = buffer + (part.position - range.begin);
    workers_.reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count,
                    WritePolicy::cached);
  });
  turn_to(Activity::wait_for_nodes);
}

void Call::deliver_sum(std::span<const std::byte* const> values) {
  turn_to(operation_->consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes, [&](Range range) {
    layout_.for_each_part(range, [&](const FusedLayout::Part& part) {
      sources_.clear();
      for (const std::byte* const value : values) sources_.push_back(value + part.position);
      const Reduction sum{combining(operation_->reduce), layout_.wire(part.segment),
                          segment(part).dtype};
      reduce_part_to_self(part, sum, sources_, scratch, WritePolicy::cached);
    });
  });
}

void Call::deliver_small(const std::byte* buffer) const {
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes,
                 [&](Range range) { deliver_wire(range, buffer + range.begin, scratch); });
}

}  // namespace tutti::collectives
