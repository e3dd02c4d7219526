// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/call.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace tutti::collectives {

namespace {

// What is fetched stays in the cache until it is summed.
constexpr std::size_t kFetchBuffer = std::size_t{256} << 10;
constexpr std::size_t kLeastFetched = std::size_t{4} << 10;

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
  return operation.verb == Verb::of_kind ? of_kind(operation.kind) : operation.verb;
}

}  // namespace

namespace {

// Longer than ranks in step wait for each other between two chunks.
constexpr auto kHelperSpin = std::chrono::microseconds(30);

Workers::Options workers_for(const NodeMemory& memory, const Topology& topology,
                             const Waiter& waiter, const Tuning& tuning) {
  const bool have_cores = tuning.threads <= topology.cores_per_rank;
  return {.threads = tuning.threads,
          .spin = have_cores ? kHelperSpin : std::chrono::microseconds(0),
          .warn = [&log = waiter.log()](const std::string& text) { log.warn(text); },
          .pace = memory.pace};
}

}  // namespace

Call::Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
           AllocateShared allocate_shared)
    : memory_(memory),
      topology_(topology),
      waiter_(waiter),
      tuning_(tuning),
      allocate_shared_(std::move(allocate_shared)),
      workers_(workers_for(memory, topology, waiter, tuning)),
      directories_(memory.peers.size()),
      sources_(memory.peers.size()),
      destinations_(2 * memory.peers.size()) {
  layout_.reserve(kMostTinySegments);
  if (memory.reader == nullptr || memory.size() == 1) return;
  const auto others = static_cast<std::size_t>(memory.size() - 1);
  const std::size_t piece = std::clamp(kFetchBuffer / others, kLeastFetched, tuning.chunk_bytes);
  fetch_bytes_ = piece / FusedLayout::kAlignment * FusedLayout::kAlignment;
  fetch_buffer_.reset(new std::byte[fetch_bytes_ * others]);  // not touched before it is used
}

void Call::prepare(const Operation& operation, bool wide) {
  if (operation.segments.data() == nullptr && !operation.segments.empty()) throw std::bad_alloc();
  operation_ = &operation;
  layout_.assign(operation.segments, wide);
  require_steps();
  signature_ = sign(operation, layout_.total());
  is_inline_learnt_ =
      may_be_inline() && !has_single_sources(layout_) &&
      (tuning_.tries_inline(layout_.total()) || tuning_.may_be_halved(layout_.total()));
  fits_inline_ = fits_inline();
  tiny_ = false;
  find_places();
  if (fits_inline_) return;
  make_room_for_directory(sequence_ + 1);
  if (topology_.size > 1 && memory_.control().stage[0] == 0) make_slots();
}

/// A rank fetches a part of each chunk, and none where nodes exchange.
void Call::require_steps() const {
  if (topology_.size == 1) return;
  const auto ranks = static_cast<std::size_t>(memory_.size());
  std::size_t least = tuning_.chunk_bytes;
  if (topology_.num_nodes() == 1 && fetch_bytes_ > 0) least = std::min(least, fetch_bytes_ * ranks);
  if (layout_.total() / kMostChunks < least) return;
  throw Error(ErrorCode::invalid_argument,
              std::to_string(layout_.total()) + " bytes in chunks of " + std::to_string(least) +
                  " are too many chunks for one call; raise TUTTI_CHUNK_BYTES, or make several "
                  "calls");
}

bool Call::prepare_tiny(const Operation& operation) noexcept {
  if (operation.packing != nullptr || operation.lanes_apart || !places_tiny(operation.segments)) {
    return false;
  }
  operation_ = &operation;
  layout_.assign(operation.segments, /*wide=*/false);  // has room for so few segments
  if (layout_.total() > tuning_.inline_shared_bytes) return false;
  signature_ = sign(operation, layout_.total());
  fits_inline_ = true;
  tiny_ = true;
  places_.clear();
  return true;
}

/// Each rank has what it is the source of end to end in its own line. Sources only grow from
/// segment to segment, so that the blocks of one follow each other.
bool Call::places_tiny(std::span<const Segment> segments) noexcept {
  if (segments.size() > kMostTinySegments) return false;
  std::size_t end = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    if (i > 0 && segment.source < segments[i - 1].source) return false;
    if (i > 0 && segment.source > segments[i - 1].source) end = 0;
    const std::size_t width = size_of(segment.dtype);
    end = (end + width - 1) / width * width;
    if (segment.count > kTinyBytes || end + segment.count * width > kTinyBytes) return false;
    tiny_places_[i] = static_cast<std::uint8_t>(end);
    end += segment.count * width;
  }
  return true;
}

bool Call::is_source(const Segment& segment) const {
  return segment.source == kEveryRank || segment.source == topology_.rank;
}

bool Call::is_destination(const Segment& segment) const {
  return segment.destination == kEveryRank || segment.destination == topology_.rank;
}

// --- announcing ---------------------------------------------------------------------------------

/// True if the result of a segment is written where its input is read. A copy of one source leaves
/// that as it is.
bool Call::is_overwritten(const Segment& segment) const {
  if (segment.source != kEveryRank && operation_->consumer == nullptr) return false;
  const std::size_t bytes = segment.count * size_of(segment.dtype);
  const auto meets = [&](const std::byte* output) {
    return output != nullptr && output < segment.input + bytes && segment.input < output + bytes;
  };
  return meets(segment.output) || meets(segment.second_output);
}

/// What holds for all inputs and outputs that this rank has in the call.
std::uint32_t Call::memory_flags() const {
  const bool consumed = operation_->consumer != nullptr;
  std::uint32_t flags = kInputsShared | kInputsPrivate | kInputsApart;
  flags |= consumed ? kConsumed : kOutputsInPlace;
  if (!places_.empty()) flags |= kSharesUpdates;
  const auto is_mapped = [&](const std::byte* address) {
    return memory_.is_mapped(memory_.offset_of(address));
  };
  for (const Segment& segment : layout_.segments()) {
    if (segment.count == 0) continue;
    if (is_source(segment)) {
      flags &= ~(is_mapped(segment.input) ? kInputsPrivate : kInputsShared);
      if (is_destination(segment) && is_overwritten(segment)) flags &= ~kInputsApart;
    }
    const bool in_place = is_mapped(segment.output) &&
                          (segment.second_output == nullptr || is_mapped(segment.second_output));
    if (is_destination(segment) && !in_place) flags &= ~kOutputsInPlace;
  }
  return flags;
}

/// At the first call that may need them, in one piece: a group that makes small calls alone needs
/// none, and a rank that has no room for all keeps none.
void Call::make_slots() {
  const std::size_t chunk = tuning_.chunk_bytes * static_cast<std::size_t>(tuning_.most_pieces);
  const std::size_t bytes = (chunk + kLineBytes - 1) / kLineBytes * kLineBytes;
  std::uint64_t slot = memory_.offset_of(allocate_shared_(4 * bytes));
  ControlBlock& control = memory_.control();
  for (auto* slots : {control.result, control.stage}) {
    for (int i = 0; i < 2; ++i, slot += bytes) slots[i] = slot;
  }
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
        segment.second_output == nullptr ? kNoBuffer : memory_.offset_of(segment.second_output)};
  };
  SegmentDirectory& directory = line(memory_.local_rank).directory;
  if (segments.size() == 1) directory.only = shared_segment(segments.front());
  if (segments.size() < 2) return;
  const std::span<SharedSegment> table = tables_[sequence_ & 1];
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const SharedSegment now = shared_segment(segments[i]);
    if (table[i] == now) continue;  // peers have the line in their caches still
    table[i] = now;
  }
  directory.table = memory_.offset_of(reinterpret_cast<const std::byte*>(table.data()));
}

/// What is alone in its node has nobody who would read it.
void Call::fill_payload() {
  if (memory_.size() == 1) return;
  std::byte* payload = payload_of(memory_.local_rank);
  layout_.for_each_segment([&](const FusedLayout::Part& part) {
    const Segment& own = segment(part);
    if (!is_source(own)) return;
    std::memcpy(payload + place_in_payload(part), own.input, own.count * size_of(own.dtype));
  });
}

/// A handshake is not packed, so that what is packed does not depend on what else is in the call;
/// and it would be summed over the node.
bool Call::may_be_inline() const {
  return operation_->packing == nullptr && !operation_->lanes_apart &&
         layout_.total() <= std::max(kInlineBytes, tuning_.most_halved_bytes());
}

/// Between nodes, what has one source would be sent by all to all others, so less of it is.
bool Call::fits_inline() const {
  const std::size_t bytes = layout_.total();
  return may_be_inline() && !is_inline_learnt_ && bytes <= tuning_.inline_shared_bytes &&
         (bytes <= kInlineInNode || topology_.num_nodes() == 1 || !has_single_sources(layout_));
}

CallClass Call::own_class() const {
  const std::uint32_t flags = memory_flags();
  return class_of(flags, (flags & kConsumed) != 0);
}

void Call::announce(bool with_inputs) noexcept {
  if (fits_inline_) {
    fill_payload();
    return publish(kPayload);
  }
  std::uint32_t flags = memory_flags();
  if (with_inputs) flags |= kPayload;
  if ((flags & kPayload) != 0) fill_payload();
  // Ranks in other memory may want it otherwise; then the call is not inline.
  fill_directory();
  fill_places();
  publish(flags);
}

void Call::announce_refusal() noexcept { publish(kRefused); }

/// The record is written while the announcement is on its way.
void Call::publish(std::uint32_t flags) noexcept {
  const bool stop = stop_ != nullptr && stop_->load(std::memory_order_relaxed) != Stop::none;
  if (stop || asks_to_stop_.load(std::memory_order_relaxed)) flags |= kStopRequested;
  AnnounceLine& mine = line(memory_.local_rank);
  mine.signature = signature_;
  mine.flags = static_cast<std::uint16_t>(flags);
  announced_time_ = std::exchange(last_time_, {});
  mine.last_end = announced_time_.end;
  mine.last_duration = announced_time_.packed;
  mine.sequence.store(sequence_, std::memory_order_release);
  own_flags_ = flags;
  waiter_.wake();
  waiting_since_ = 0;
  arrived_ = 0;
  last_ = memory_.local_rank;
  record();
}

void Call::record() noexcept {
  const Operation& operation = *operation_;
  memory_.control().calls.begin({.sequence = sequence_,
                                 .verb = verb_of(operation),
                                 .keys = static_cast<std::uint32_t>(operation.keys),
                                 .first_key = operation.first_key,
                                 .digest = operation.digest,
                                 .bytes = layout_.value_bytes(),
                                 .begun = begun_});
}

/// Leaves this rank's own line alone: reading back what was written a moment ago, while the peers
/// take the line over, would double the time of a small call.
///
/// Peers are looked at in turn, and one that came meanwhile takes no further look: the last one
/// that was found missing is the last one to come.
bool Call::all_announced() {
  const int self = memory_.local_rank;
  while (arrived_ < memory_.size() && (arrived_ == self || !missing(arrived_))) ++arrived_;
  if (arrived_ == memory_.size()) return true;
  if (waiting_since_ == 0) waiting_since_ = ticks();  // costs a rank that waits nothing
  last_ = arrived_;
  return false;
}

bool Call::finds_all_alike() {
  if (own_flags_ != kPayload) return false;
  if (memory_.size() > 1) turn_to(Activity::wait_for_ranks);
  if (!waiter_.soon([&] { return all_announced(); })) return false;
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == memory_.local_rank) continue;
    const AnnounceLine& other = line(peer);
    if (other.flags != own_flags_ || !(other.signature == signature_)) return false;
  }
  common_flags_ = any_flags_ = own_flags_;
  return node_agrees_ = true;
}

std::uint32_t Call::longest_time() const {
  LongestTime longest(announced_time_);
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == memory_.local_rank) continue;
    const AnnounceLine& other = line(peer);
    longest.add({other.last_end, other.last_duration});
  }
  return longest.get();
}

void Call::wait_for_announcements() {
  if (memory_.size() > 1) turn_to(Activity::wait_for_ranks);
  waiter_.until([&] { return all_announced(); },
                [&] { return ranks_where([&](int peer) { return missing(peer); }); });
  node_agrees_ = (own_flags_ & kRefused) == 0;
  common_flags_ = own_flags_;
  any_flags_ = own_flags_;
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == memory_.local_rank) continue;
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

CallClass Call::call_class() const {
  return class_of(common_flags_, (any_flags_ & kConsumed) != 0);
}

CallClass Call::class_between_nodes() const {
  return {.kind = operation_->kind,
          .between_nodes = true,
          .may_be_inline = is_inline_learnt_ && tuning_.tries_inline(layout_.total()),
          .may_be_halved = is_inline_learnt_ && tuning_.may_be_halved(layout_.total()),
          .size = static_cast<std::uint8_t>(std::bit_width(layout_.total() - 1))};
}

CallClass Call::class_of(std::uint32_t flags, bool consumed) const {
  const auto location = [&] {
    if ((flags & kInputsShared) != 0) return Location::shared;
    return (flags & kInputsPrivate) != 0 ? Location::ordinary : Location::mixed;
  };
  return {.kind = operation_->kind,
          .inputs = location(),
          .in_place = (flags & kOutputsInPlace) != 0,
          .consumed = consumed,
          .shares_updates = (flags & kSharesUpdates) != 0,
          .apart = (flags & kInputsApart) != 0,
          .size = static_cast<std::uint8_t>(std::bit_width(layout_.total()) - 1)};
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
