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

// --- addresses ----------------------------------------------------------------------------------

const SharedSegment& Call::shared(int peer, std::size_t segment) const {
  const AnnounceLine& announced = line(peer);
  if (layout_.segments().size() == 1) return announced.only;
  return reinterpret_cast<const SharedSegment*>(memory_.peers[peer].arena +
                                                announced.table)[segment];
}

template <class Address>
void Call::gather(const Segment& segment, int first, int count, Address address) {
  if (segment.source != kEveryRank) {
    first = local_rank_of(segment.source);
    count = 1;
  }
  sources_.resize(count);
  for (int i = 0; i < count; ++i) sources_[i] = address(first + i);
}

void Call::gather_inputs(const FlatLayout::Part& part, const Sources& sources) {
  const std::size_t offset = part.first * size_of(segment(part).dtype);
  gather(segment(part), sources.first, sources.count, [&](int peer) -> const std::byte* {
    const Peer& other = memory_.peers[peer];
    const std::uint64_t input = shared(peer, part.segment).input;
    if (input != kNotShared) return other.arena + input + offset;
    return other.arena + other.control().stage[sources.slot] +
           (part.position - sources.chunk.begin);
  });
}

void Call::gather_payloads(const FlatLayout::Part& part, int first, int count) {
  gather(segment(part), first, count, [&](int peer) { return line(peer).payload + part.position; });
}

void Call::gather_outputs(const FlatLayout::Part& part, Range chunk, int slot) {
  const std::size_t offset = part.first * size_of(segment(part).dtype);
  const auto address = [&](int peer) {
    const Peer& other = memory_.peers[peer];
    return in_place() ? other.arena + shared(peer, part.segment).output + offset
                      : other.arena + other.control().result[slot] + (part.position - chunk.begin);
  };
  destinations_.clear();
  if (segment(part).destination == kEveryRank) {
    for (int peer = 0; peer < memory_.size(); ++peer) destinations_.push_back(address(peer));
  } else if (const int peer = local_rank_of(segment(part).destination); peer >= 0) {
    destinations_.push_back(address(peer));
  }
}

std::byte* Call::own_output(const FlatLayout::Part& part) const {
  return segment(part).output + part.first * size_of(segment(part).dtype);
}

Reduction Call::to_output(std::size_t segment) const {
  const DType dtype = layout_.segments()[segment].dtype;
  return {operation_->reduce, dtype, dtype};
}

Reduction Call::to_wire(std::size_t segment) const {
  return {operation_->reduce, layout_.segments()[segment].dtype, layout_.wire(segment)};
}

// --- moving data --------------------------------------------------------------------------------

void Call::stage(Range chunk, int slot) const {
  std::byte* mine = memory_.self().arena + memory_.control().stage[slot];
  layout_.for_each_part(chunk, [&](const FlatLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own) || shared(memory_.local_rank, part.segment).input != kNotShared) return;
    const std::size_t width = size_of(own.dtype);
    std::memcpy(mine + (part.position - chunk.begin), own.input + part.first * width,
                part.count * width);
  });
}

void Call::reduce_to_all(Range range, const Sources& sources, Stores stores) {
  layout_.for_each_part(range, [&](const FlatLayout::Part& part) {
    gather_inputs(part, sources);
    gather_outputs(part, sources.chunk, sources.slot);
    reduce(to_output(part.segment), sources_, destinations_, part.count, stores);
  });
}

void Call::reduce_to_self(Range range, const Sources& sources) {
  std::byte* slot = memory_.self().arena + memory_.control().result[sources.slot];
  layout_.for_each_part(range, [&](const FlatLayout::Part& part) {
    if (!is_destination(segment(part))) return;
    gather_inputs(part, sources);
    std::byte* to = operation_->consumer == nullptr ? own_output(part)
                                                    : slot + (part.position - sources.chunk.begin);
    reduce(to_output(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
    if (operation_->consumer != nullptr) {
      operation_->consumer->consume(part.segment, part.first, part.count, to);
    }
  });
}

void Call::reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer) {
  layout_.for_each_part(range, [&](const FlatLayout::Part& part) {
    gather_inputs(part, sources);
    std::byte* to = buffer + (part.position - range.begin);
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
  });
}

void Call::spread_to_all(Range range, const std::byte* buffer, Range chunk, int slot) {
  layout_.for_each_part(range, [&](const FlatLayout::Part& part) {
    gather_outputs(part, chunk, slot);
    const std::byte* from = buffer + (part.position - range.begin);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce(narrow, std::span(&from, 1), destinations_, part.count, Stores::cached);
  });
}

void Call::deliver(Range chunk, int slot) const {
  const std::byte* mine = memory_.self().arena + memory_.control().result[slot];
  layout_.for_each_part(chunk, [&](const FlatLayout::Part& part) {
    if (!is_destination(segment(part))) return;
    const std::byte* from = mine + (part.position - chunk.begin);
    if (operation_->consumer != nullptr) {
      operation_->consumer->consume(part.segment, part.first, part.count, from);
    } else {
      const std::size_t width = size_of(segment(part).dtype);
      std::memcpy(own_output(part), from, part.count * width);
    }
  });
}

// --- small calls --------------------------------------------------------------------------------

void Call::reduce_payloads_to_self() {
  alignas(FlatLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_part({0, layout_.total()}, [&](const FlatLayout::Part& part) {
    if (!is_destination(segment(part))) return;
    gather_payloads(part, 0, memory_.size());
    const bool consumed = operation_->consumer != nullptr;
    std::byte* to = consumed ? scratch : own_output(part);
    reduce(to_output(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
    if (consumed) operation_->consumer->consume(part.segment, part.first, part.count, to);
  });
}

void Call::reduce_payloads_to_buffer(int first, int count, std::byte* buffer) {
  layout_.for_each_part({0, layout_.total()}, [&](const FlatLayout::Part& part) {
    if (segment(part).source != kEveryRank && local_rank_of(segment(part).source) < 0) return;
    gather_payloads(part, first, count);
    std::byte* to = buffer + part.position;
    reduce(to_wire(part.segment), sources_, std::span(&to, 1), part.count, Stores::cached);
  });
}

void Call::deliver_wire(const std::byte* buffer) const {
  alignas(FlatLayout::kAlignment) std::byte scratch[kInlineBytes];
  layout_.for_each_part({0, layout_.total()}, [&](const FlatLayout::Part& part) {
    if (!is_destination(segment(part))) return;
    const std::byte* from = buffer + part.position;
    const bool consumed = operation_->consumer != nullptr;
    std::byte* to = consumed ? scratch : own_output(part);
    const Reduction narrow{operation_->reduce, layout_.wire(part.segment), segment(part).dtype};
    reduce(narrow, std::span(&from, 1), std::span(&to, 1), part.count, Stores::cached);
    if (consumed) operation_->consumer->consume(part.segment, part.first, part.count, to);
  });
}

}  // namespace tutti::collectives
