// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/node_data.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/job/shifted.hpp"

namespace tutti::collectives {
namespace {

/// Small enough that fetched data is still in the cache when it is summed.
constexpr std::size_t kFetchBuffer = std::size_t{256} << 10;
constexpr std::size_t kLeastFetched = std::size_t{4} << 10;
/// A buffer on the stack for elements that are summed or widened on their way to a consumer.
constexpr std::size_t kScratchBytes = std::size_t{32} << 10;

}  // namespace

NodeData::NodeData(const CallContext& call, const Announcement& announcement,
                   const SharedUpdates& updates)
    : call_(call),
      announcement_(announcement),
      updates_(updates),
      streams_(call.memory.peers.size()),
      sources_(call.memory.peers.size()),
      destinations_(2 * call.memory.peers.size()) {
  if (call.memory.reader == nullptr || call.memory.size() == 1) return;
  const auto others = static_cast<std::size_t>(call.memory.size() - 1);
  const std::size_t piece =
      std::clamp(kFetchBuffer / others, kLeastFetched, call.tuning.chunk_bytes);
  fetch_bytes_ = piece / FusedLayout::kAlignment * FusedLayout::kAlignment;
  fetch_buffer_.reset(new std::byte[fetch_bytes_ * others]);  // not touched before it is used
}

// --- addresses ----------------------------------------------------------------------------------

template <class Address>
void NodeData::gather(const Segment& segment, int first, int count, Address address) {
  if (segment.source != kEveryRank) {
    first = call_.topology.local_rank_of(segment.source);
    count = 1;
  }
  sources_.resize(count);
  for (int i = 0; i < count; ++i) sources_[i] = address(first + i);
}

void NodeData::gather_inputs(const FusedLayout::Part& part, const Sources& sources) {
  const std::size_t offset = part.first * size_of(call_.segment(part).dtype);
  gather(call_.segment(part), sources.first, sources.count, [&](int peer) -> const std::byte* {
    const Peer& other = call_.memory.peers[peer];
    const std::uint64_t input = announcement_.shared(peer, part.segment).input;
    if (peer == call_.memory.local_rank || call_.memory.is_mapped(input))
      return other.arena + input + offset;
    if (sources.fetched.size() > 0) {
      return fetched_from(peer) + call_.layout.slot_offset(part, sources.fetched);
    }
    return slot_of(peer, sources.slot) + call_.layout.slot_offset(part, sources.chunk);
  });
}

/// Collects the addresses of a part in the payloads. This rank's own elements are read from its
/// input instead of its line, see Announcement::all_announced().
void NodeData::gather_payloads(const FusedLayout::Part& part, int first, int count) {
  gather(call_.segment(part), first, count, [&](int peer) -> const std::byte* {
    if (peer != call_.memory.local_rank)
      return announcement_.payload_of(peer) + announcement_.offset_in_payload(part);
    return call_.segment(part).input + part.first * size_of(call_.segment(part).dtype);
  });
}

/// Adds the addresses where a local rank receives a part: both its outputs if in place, or else its
/// slot.
void NodeData::add_destinations(const FusedLayout::Part& part, int peer, Range chunk,
                                std::size_t slot) {
  const Peer& other = call_.memory.peers[peer];
  if (!announcement_.in_place()) {
    destinations_.push_back(slot_of(peer, slot) + call_.layout.slot_offset(part, chunk));
    return;
  }
  const std::size_t offset = part.first * size_of(call_.segment(part).dtype);
  const SharedSegment& theirs = announcement_.shared(peer, part.segment);
  destinations_.push_back(other.arena + theirs.output + offset);
  if (theirs.second_output != kNoBuffer)
    destinations_.push_back(other.arena + theirs.second_output + offset);
}

void NodeData::gather_outputs(const FusedLayout::Part& part, Range chunk, std::size_t slot) {
  destinations_.clear();
  if (call_.operation->lanes_apart) {
    add_destinations(part, call_.memory.local_rank, chunk, slot);
  } else if (call_.segment(part).destination == kEveryRank) {
    for (int peer = 0; peer < call_.memory.size(); ++peer)
      add_destinations(part, peer, chunk, slot);
  } else if (const int peer = call_.topology.local_rank_of(call_.segment(part).destination);
             peer >= 0) {
    add_destinations(part, peer, chunk, slot);
  }
}

Reduction NodeData::to_wire(std::size_t segment) const {
  return {combining(call_.operation->reduce), call_.layout.segments()[segment].dtype,
          call_.layout.wire(segment)};
}

// --- fetching -----------------------------------------------------------------------------------

bool NodeData::is_fetched(const Segment& segment, std::size_t index, int peer) const {
  const bool is_source =
      segment.source == kEveryRank || call_.topology.local_rank_of(segment.source) == peer;
  return is_source && !call_.memory.is_mapped(announcement_.shared(peer, index).input);
}

std::byte* NodeData::fetched_from(int peer) const {
  const int place = peer < call_.memory.local_rank ? peer : peer - 1;
  return fetch_buffer_.get() + static_cast<std::size_t>(place) * fetch_bytes_;
}

void NodeData::fetch(Range chunk, bool own_only) {
  call_.turn_to(Activity::copy_in);
  for (int peer = 0; peer < call_.memory.size(); ++peer) {
    if (peer == call_.memory.local_rank) continue;
    pieces_.clear();
    call_.layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
      const Segment& own = call_.segment(part);
      if (own_only && !call_.is_destination(own)) return;
      if (!is_fetched(own, part.segment, peer)) return;
      const std::size_t width = size_of(own.dtype);
      pieces_.push_back({fetched_from(peer) + call_.layout.slot_offset(part, chunk),
                         call_.memory.peers[peer].control().address +
                             announcement_.shared(peer, part.segment).input + part.first * width,
                         part.count * width});
    });
    if (!pieces_.empty()) call_.memory.reader->read(peer, pieces_);
  }
}

void NodeData::fetch_results(Range range, int peer) {
  call_.turn_to(Activity::copy_out);
  pieces_.clear();
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.first * size_of(call_.segment(part).dtype);
    pieces_.push_back({call_.segment(part).output + offset,
                       call_.memory.peers[peer].control().address +
                           announcement_.shared(peer, part.segment).output + offset,
                       part.count * size_of(call_.segment(part).dtype)});
  });
  if (pieces_.empty()) return;
  call_.memory.reader->read(peer, pieces_);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    std::byte* const second = call_.segment(part).second_output;
    if (second == nullptr) return;
    const std::size_t width = size_of(call_.segment(part).dtype);
    std::memcpy(second + part.first * width, call_.segment(part).output + part.first * width,
                part.count * width);
  });
}

/// Copies in pieces that are small enough to check for failures in between. Ranks begin with
/// different segments, so that not all of them read from the same peer at first.
void NodeData::copy_to_self(WritePolicy stores) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  call_.turn_to(Activity::copy_out);
  const auto segments = call_.layout.segments();
  const auto place = static_cast<std::size_t>(call_.memory.local_rank);
  const std::size_t start = place * segments.size() / call_.memory.peers.size();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t index = (start + i) % segments.size();
    if (!call_.is_destination(segments[index])) continue;
    const std::size_t width = size_of(segments[index].dtype);
    const std::size_t most = kPieceBytes / width;
    for (std::size_t first = 0; first < segments[index].count; first += most) {
      call_.waiter.check_failure();
      copy_part(index, first, std::min(most, segments[index].count - first), stores);
    }
  }
  if (stores == WritePolicy::streaming) streaming_fence();
}

void NodeData::copy_part(std::size_t index, std::size_t first, std::size_t count,
                         WritePolicy stores) {
  const Segment& own = call_.layout.segments()[index];
  const int peer = call_.topology.local_rank_of(own.source);
  const std::size_t offset = first * size_of(own.dtype);
  const std::size_t bytes = count * size_of(own.dtype);
  const Peer& other = call_.memory.peers[static_cast<std::size_t>(peer)];
  const std::uint64_t input = announcement_.shared(peer, index).input;
  if (peer == call_.memory.local_rank || call_.memory.is_mapped(input)) {
    const std::byte* const from = other.arena + input + offset;
    std::byte* outputs[] = {own.output + offset, nullptr};
    if (own.second_output != nullptr) outputs[1] = own.second_output + offset;
    call_.workers.reduce(call_.to_output(index), std::span(&from, 1),
                         std::span(outputs, own.second_output != nullptr ? 2 : 1), count, stores);
    return;
  }
  const PeerReader::Piece piece{own.output + offset, other.control().address + input + offset,
                                bytes};
  call_.memory.reader->read(peer, std::span(&piece, 1));
  if (own.second_output != nullptr) {
    std::memcpy(own.second_output + offset, own.output + offset, bytes);
  }
}

void NodeData::make_room_for_sums() {
  if (sums_ != nullptr) return;
  sums_.reset(new std::byte[call_.tuning.largest_chunk()]);  // not touched before it is used
}

// --- moving data --------------------------------------------------------------------------------

void NodeData::stage(Range chunk, std::size_t slot, WritePolicy stores, bool for_others) const {
  call_.turn_to(Activity::copy_in);
  std::byte* const mine = own_slot(slot);
  call_.layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const Segment& own = call_.segment(part);
    if (!call_.is_source(own) || call_.memory.is_mapped(call_.memory.offset_of(own.input))) return;
    if (for_others && own.destination == call_.topology.rank) return;
    const std::size_t width = size_of(own.dtype);
    const std::byte* from = own.input + part.first * width;
    std::byte* to = mine + call_.layout.slot_offset(part, chunk);
    call_.workers.reduce(call_.to_output(part.segment), std::span(&from, 1), std::span(&to, 1),
                         part.count, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

const BlockStreams* NodeData::find_streams() {
  if (!has_single_sources(call_.layout)) return nullptr;
  return streams_.assign(call_.layout, call_.topology) ? &streams_ : nullptr;
}

void NodeData::reduce_to_all(Range range, const Sources& sources, WritePolicy stores) {
  call_.turn_to(Activity::reduce);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    gather_outputs(part, sources.chunk, sources.result_slot);
    call_.workers.reduce(call_.to_output(part.segment), sources_, destinations_, part.count,
                         stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

/// A single source of the output's type is consumed without a reduction, unless it is the memory
/// that the consumer writes to.
void NodeData::reduce_part_to_self(const FusedLayout::Part& part, const Reduction& reduction,
                                   std::span<const std::byte* const> sources, std::byte* scratch,
                                   WritePolicy stores) const {
  if (!call_.is_destination(call_.segment(part))) return;
  const std::size_t offset = part.first * size_of(call_.segment(part).dtype);
  std::byte* outputs[] = {call_.segment(part).output + offset, nullptr};
  if (call_.operation->consumer == nullptr) {
    const bool two = call_.segment(part).second_output != nullptr;
    if (two) outputs[1] = call_.segment(part).second_output + offset;
    call_.workers.reduce(reduction, sources, std::span(outputs, two ? 2 : 1), part.count, stores);
    return;
  }
  const bool as_it_is = sources.size() == 1 && reduction.from == reduction.to;
  if (as_it_is && sources.front() != outputs[0]) {
    return consume_by_all(part, sources.front());
  }
  call_.workers.reduce(reduction, sources, std::span(&scratch, 1), part.count, WritePolicy::cached);
  consume_by_all(part, scratch);
}

void NodeData::reduce_to_self(Range range, const Sources& sources, WritePolicy stores) {
  call_.turn_to(call_.operation->consumer == nullptr ? Activity::reduce
                                                     : Activity::reduce_and_update);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    if (!call_.is_destination(call_.segment(part))) return;
    gather_inputs(part, sources);
    std::byte* const scratch =
        sums_ == nullptr ? nullptr : sums_.get() + call_.layout.slot_offset(part, sources.chunk);
    reduce_part_to_self(part, call_.to_output(part.segment), sources_, scratch, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void NodeData::update_for_all(Range range, const Sources& sources, WritePolicy stores) {
  call_.turn_to(Activity::reduce_and_update);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    const std::size_t width = size_of(call_.segment(part).dtype);
    call_.workers.over(part.count, width, [&](std::size_t first, std::size_t count) {
      updates_.update(part, sources_, first, count, stores);
    });
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void NodeData::reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer) {
  call_.turn_to(Activity::reduce);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_inputs(part, sources);
    std::byte* to = buffer + (part.position - range.begin);
    call_.workers.reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count,
                         WritePolicy::cached);
  });
}

bool NodeData::is_carried_as_it_is(const FusedLayout::Part& part) const {
  return call_.is_alone_in_lane() && call_.layout.wire(part.segment) == call_.segment(part).dtype;
}

const std::byte* NodeData::input_as_carried(const FusedLayout::Part& part) const {
  const Segment& own = call_.segment(part);
  if (!call_.is_source(own) || !is_carried_as_it_is(part)) return nullptr;
  return own.input + part.first * size_of(own.dtype);
}

/// Returns the part that covers the whole range, if there is one without padding behind it.
std::optional<FusedLayout::Part> NodeData::only_part(Range range) const {
  std::optional<FusedLayout::Part> only;
  std::size_t bytes = 0;
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    only = part;
    bytes = part.count * size_of(call_.layout.wire(part.segment));
  });
  if (bytes != range.size()) only.reset();
  return only;
}

const std::byte* NodeData::input_to_send(Range range) const {
  const auto part = only_part(range);
  const std::byte* const from = part ? input_as_carried(*part) : nullptr;
  return from != nullptr && call_.memory.is_in_arena(from) ? from : nullptr;
}

std::byte* NodeData::output_to_fill(Range range, bool over_input) const {
  const auto part = only_part(range);
  if (!part || call_.operation->consumer != nullptr || !is_carried_as_it_is(*part)) return nullptr;
  const Segment& own = call_.segment(*part);
  if (!call_.is_destination(own) || own.second_output != nullptr) return nullptr;
  if (call_.is_overwritten(own) && !(over_input && own.output == own.input)) return nullptr;
  std::byte* const to = own.output + part->first * size_of(own.dtype);
  return call_.memory.is_in_arena(to) ? to : nullptr;
}

void NodeData::spread_to_all(Range range, const std::byte* buffer, Range chunk, std::size_t slot) {
  call_.turn_to(Activity::copy_out);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    gather_outputs(part, chunk, slot);
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{call_.operation->reduce, call_.layout.wire(part.segment),
                           call_.segment(part).dtype};
    call_.workers.reduce(narrow, std::span(&from, 1), destinations_, part.count,
                         WritePolicy::cached);
  });
}

void NodeData::deliver(Range chunk, std::size_t slot, WritePolicy stores) const {
  call_.turn_to(call_.operation->consumer == nullptr ? Activity::copy_out : Activity::update);
  const std::byte* const mine = own_slot(slot);
  call_.layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
    const std::byte* from = mine + call_.layout.slot_offset(part, chunk);
    reduce_part_to_self(part, call_.to_output(part.segment), std::span(&from, 1), nullptr, stores);
  });
  if (stores == WritePolicy::streaming) streaming_fence();
}

void NodeData::deliver_wire(Range range, const std::byte* buffer, std::byte* scratch) const {
  call_.turn_to(call_.operation->consumer == nullptr ? Activity::copy_out : Activity::update);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{call_.operation->reduce, call_.layout.wire(part.segment),
                           call_.segment(part).dtype};
    reduce_part_to_self(part, narrow, std::span(&from, 1), scratch, WritePolicy::cached);
  });
}

void NodeData::deliver_own(Range range, const std::byte* buffer) const {
  deliver_wire(range, buffer, sums_.get());
}

// --- the threads of a rank ----------------------------------------------------------------------

void NodeData::consume_by_all(const FusedLayout::Part& part, const std::byte* reduced) const {
  Consumer& consumer = *call_.operation->consumer;
  const std::size_t width = size_of(call_.segment(part).dtype);
  if (!call_.workers.splits(part.count * width) || !consumer.takes_any_order()) {
    return consumer.consume(part.segment, part.first, part.count, reduced);
  }
  call_.workers.over(part.count, width, [&](std::size_t first, std::size_t now) {
    consumer.consume(part.segment, part.first + first, now, reduced + first * width);
  });
}

/// Reduces a part by one thread. A sum for a consumer stays in the first-level cache.
void NodeData::reduce_part_alone(const FusedLayout::Part& part, WritePolicy stores) const {
  const Segment& own = call_.segment(part);
  const std::size_t width = size_of(own.dtype);
  const std::span inputs = own.inputs.empty() ? std::span(&own.input, 1) : own.inputs;
  Shifted sources(inputs, part.first * width);
  std::byte* const output = own.output + part.first * width;
  const Reduction reduction = call_.to_output(part.segment);
  Consumer* const consumer = call_.operation->consumer;
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

void NodeData::reduce_alone(WritePolicy stores) const {
  const Consumer* consumer = call_.operation->consumer;
  call_.turn_to(consumer == nullptr ? Activity::reduce : Activity::reduce_and_update);
  const auto take = [&](std::size_t first, std::size_t lines) {
    const Range range{first * FusedLayout::kAlignment, (first + lines) * FusedLayout::kAlignment};
    call_.layout.for_each_part(
        range, [&](const FusedLayout::Part& part) { reduce_part_alone(part, stores); });
  };
  const std::size_t lines = call_.layout.total() / FusedLayout::kAlignment;
  if (consumer != nullptr && !consumer->takes_any_order()) {
    take(0, lines);
  } else {
    call_.workers.over(lines, FusedLayout::kAlignment, take);
  }
  if (stores == WritePolicy::streaming) streaming_fence();
}

// --- small calls --------------------------------------------------------------------------------

void NodeData::for_each_range(std::size_t most, FunctionRef<void(Range)> visit) const {
  for (std::size_t begin = 0; begin < call_.layout.total(); begin += most) {
    visit({begin, std::min(begin + most, call_.layout.total())});
  }
}

void NodeData::reduce_payloads_to_self() {
  call_.turn_to(call_.operation->consumer == nullptr ? Activity::reduce
                                                     : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes, [&](Range range) {
    call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
      if (!call_.is_destination(call_.segment(part))) return;
      gather_payloads(part, 0, call_.memory.size());
      reduce_part_to_self(part, call_.to_output(part.segment), sources_, scratch,
                          WritePolicy::cached);
    });
  });
}

void NodeData::reduce_payloads_to_buffer(int first, int count, std::byte* buffer) {
  call_.layout.for_each_segment([&](const FusedLayout::Part& part) {
    if (call_.segment(part).source != kEveryRank &&
        call_.topology.local_rank_of(call_.segment(part).source) < 0)
      return;
    gather_payloads(part, first, count);
    std::byte* to = buffer + part.position;
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, WritePolicy::cached);
  });
}

void NodeData::sum_payloads(Range range, std::byte* buffer, bool carried_too) {
  call_.turn_to(Activity::copy_in);
  call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
    if (!carried_too && input_as_carried(part) != nullptr) return;
    gather_payloads(part, 0, call_.memory.size());
    std::byte* to = buffer + (part.position - range.begin);
    call_.workers.reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count,
                         WritePolicy::cached);
  });
  call_.turn_to(Activity::wait_for_nodes);
}

void NodeData::deliver_sum(std::span<const std::byte* const> values) {
  call_.turn_to(call_.operation->consumer == nullptr ? Activity::reduce
                                                     : Activity::reduce_and_update);
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes, [&](Range range) {
    call_.layout.for_each_part(range, [&](const FusedLayout::Part& part) {
      sources_.clear();
      for (const std::byte* const value : values) sources_.push_back(value + part.position);
      const Reduction sum{combining(call_.operation->reduce), call_.layout.wire(part.segment),
                          call_.segment(part).dtype};
      reduce_part_to_self(part, sum, sources_, scratch, WritePolicy::cached);
    });
  });
}

void NodeData::deliver_small(const std::byte* buffer) const {
  alignas(FusedLayout::kAlignment) std::byte scratch[kScratchBytes];
  for_each_range(kScratchBytes,
                 [&](Range range) { deliver_wire(range, buffer + range.begin, scratch); });
}

}  // namespace tutti::collectives
