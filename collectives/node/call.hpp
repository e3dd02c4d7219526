// SPDX-License-Identifier: Apache-2.0
// A collective call as one rank sees it: the verbs that the algorithms are written in.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/choice/call_time.hpp"
#include "collectives/choice/path.hpp"
#include "collectives/choice/tuning.hpp"
#include "collectives/job/fused_layout.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/job/workers.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/spans.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// Where reduced elements come from: local ranks first .. first + count - 1, whose inputs were
/// staged (if they are not shared) as `chunk` in `slot`, or fetched (if `fetched` is not empty). A
/// segment with one source has that as its only source, whatever ranks are asked for.
struct Sources {
  Range chunk;
  int slot = 0;
  int first = 0;
  int count = 0;
  Range fetched{};  ///< what fetch() was called with
};

/// The current call of this rank, one at a time. `slot` numbers the two scratch slots of each kind.
///
/// A chunk's data moves like this, where a step is skipped if the memory is already the right one:
///   input --stage--> stage slot --reduce_to_all--> every rank's result slot --deliver--> output
class Call {
 public:
  /// A chunk takes two steps at most. Their number has few bits beside the call's: see signal().
  static constexpr std::size_t kMostChunks = (std::size_t{1} << kStepBits) / 4;

  /// Allocates memory that peers can read, never freed: for tables of segments.
  using AllocateShared = std::function<std::byte*(std::size_t bytes)>;

  Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
       AllocateShared allocate_shared);

  /// All that may fail on this rank alone, while the other ranks know nothing of the call. `wide`:
  /// see FusedLayout. Errors: out_of_memory; invalid_argument, if chunks are so small that a call
  /// would have millions of them. A call without segments has none.
  void prepare(const Operation& operation, bool wide);
  /// prepare() for a call of few segments, where what any rank gives fits into the first cache line
  /// of the announcement; such a call cannot fail here. False if this is another call.
  [[nodiscard]] bool prepare_tiny(const Operation& operation) noexcept;
  /// Draws the next sequence number for the call that was prepared. `begun`: in ticks.
  void begin(std::uint64_t begun) noexcept {
    begun_ = begun;
    ++sequence_;
    step_ = sequence_ << kStepBits;
  }

  /// Where it keeps what it does when; null: nowhere.
  void keep_in(SpanLog* spans) { spans_ = spans; }
  [[nodiscard]] SpanLog* spans() const { return spans_; }
  [[nodiscard]] Workers& workers() const { return workers_; }
  void turn_to(Activity activity) const {
    if (spans_ != nullptr) spans_->switch_to(activity);
  }

  /// Announcements say from now on whether this flag is set.
  void watch(const StopFlag& stop) { stop_ = &stop; }
  /// Announcements say so from now on whatever the flag says. Any thread.
  void request_stop() { asks_to_stop_.store(true, std::memory_order_relaxed); }
  /// True if a rank of the node announced this call with a request to stop.
  [[nodiscard]] bool stop_requested() const { return (any_flags_ & kStopRequested) != 0; }

  /// Notes in this rank's record how far the call is.
  void mark(Phase phase) { memory_.control().calls.mark(sequence_, phase); }

  [[nodiscard]] const Operation& operation() const { return *operation_; }
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] const FusedLayout& layout() const { return layout_; }
  /// See FusedLayout. All ranks alike, before any data moves.
  void interleave(const FusedLayout::Streams& streams, std::size_t strips) {
    layout_.interleave(streams, strips);
  }
  [[nodiscard]] const NodeMemory& memory() const { return memory_; }
  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] Waiter& waiter() const { return waiter_; }

  /// The line in which a local rank announces this call.
  [[nodiscard]] AnnounceLine& line(int peer) const {
    return memory_.peers[peer].control().announce[sequence_ & 1];
  }
  [[nodiscard]] AgreementLine& agreement_line() const {
    return memory_.first().agreement[sequence_ & 1];
  }

  /// True if the inputs fit into the announcement, and may travel there.
  [[nodiscard]] bool may_be_inline() const;
  /// The data travels in the announcement, wherever it lies.
  [[nodiscard]] bool fits_inline() const;
  /// Between nodes: the learner says whether the inputs travel with the handshakes, and how.
  [[nodiscard]] bool is_inline_learnt() const { return is_inline_learnt_; }
  /// The class that the call has if all ranks have their data where this one has.
  [[nodiscard]] CallClass own_class() const;
  /// Tells the node that this rank has called, and where its data is; `with_inputs`, or if the call
  /// is small enough for any memory, also its inputs.
  void announce(bool with_inputs) noexcept;
  /// Tells the node that this rank's call is invalid.
  void announce_refusal() noexcept;
  /// True if all ranks of the node announce within the time that most waits take, all with a
  /// payload that is one whatever the memory, and none asks to stop: how small calls end, but for
  /// the data. Not after false, which says nothing: wait_for_announcements() goes on.
  [[nodiscard]] bool finds_all_alike();
  /// Waits until all ranks of the node have, and reads their flags and signatures.
  void wait_for_announcements();
  /// Since when this rank has waited for others to announce the call, in ticks; 0 if it did not.
  [[nodiscard]] std::uint64_t waiting_since() const { return waiting_since_; }
  /// From now on it waits for other nodes.
  void wait_for_others() {
    if (waiting_since_ == 0) waiting_since_ = ticks();
    turn_to(Activity::wait_for_nodes);
  }
  /// The rank of this node that announced it last, as far as this one saw: itself, if it found all
  /// others there.
  [[nodiscard]] int last_rank() const { return topology_.local_ranks()[last_]; }

  [[nodiscard]] const Signature& signature() const { return signature_; }
  /// True if every rank of the node announced this rank's signature and none refused its call.
  [[nodiscard]] bool node_agrees() const { return node_agrees_; }
  /// What the other calls of its kind have in common with it. Of a call with data.
  [[nodiscard]] CallClass call_class() const;
  /// What all ranks of all nodes know of a call that crosses between nodes.
  [[nodiscard]] CallClass class_between_nodes() const;
  /// Says in the next announcement how long a call took.
  void report_time(const CallTime& time) { last_time_ = time; }
  /// What this call's announcements say of the call before it: see LongestTime.
  [[nodiscard]] std::uint32_t longest_time() const;

  /// What holds for every rank of the node.
  [[nodiscard]] bool inputs_shared() const { return (common_flags_ & kInputsShared) != 0; }
  [[nodiscard]] bool inputs_private() const { return (common_flags_ & kInputsPrivate) != 0; }
  /// The inputs travel in the announcements.
  [[nodiscard]] bool is_inline() const { return (common_flags_ & kPayload) != 0; }
  [[nodiscard]] bool in_place() const { return (common_flags_ & kOutputsInPlace) != 0; }

  /// One more step of this call is done. All ranks of a node go through the same steps.
  void signal();
  /// Waits until every rank of the node has done as many steps as this one, and waits for all.
  void wait_for_all();
  /// The same for the local ranks first .. first + count - 1, whatever they do next.
  void wait_for_steps(int first, int count);
  /// Waits until a local rank has done `step` steps.
  void wait_for(int peer, std::uint64_t step);

  /// Copies this rank's inputs that peers cannot read into its stage slot.
  void stage(Range chunk, int slot, WritePolicy stores) const;
  /// The most that fetch() takes at a time; 0 where ranks cannot read each other's memory.
  [[nodiscard]] std::size_t fetch_bytes() const { return fetch_bytes_; }
  /// Copies here what this process cannot read of the other ranks' inputs; with `own_only`, of the
  /// segments that this rank is a destination of. Errors: communication.
  void fetch(Range chunk, bool own_only);
  /// Copies to this rank's outputs what a peer has in its own. Errors: communication.
  void fetch_results(Range range, int peer);
  /// Reduces into every rank's output (in place) or result slot.
  void reduce_to_all(Range range, const Sources& sources, WritePolicy stores);
  /// Reduces into this rank's own output, or for its consumer.
  void reduce_to_self(Range range, const Sources& sources, WritePolicy stores);
  /// Reduces for this rank's consumer, and copies what that wrote to the places of all other ranks
  /// of the node. Only where the call's class says that updates can be shared.
  void update_for_all(Range range, const Sources& sources, WritePolicy stores);
  /// Copies what this rank wants of other ranks' inputs to its outputs, where each segment has one
  /// source: from arenas, or through the kernel without a buffer between. Errors: communication.
  void copy_to_self(WritePolicy stores);
  /// In a job of one rank: hands over all of its elements, without waiting and without a copy.
  void reduce_alone(WritePolicy stores) const;
  /// Reduces into wire elements at `buffer` + (position - range.begin).
  void reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer);
  /// True if no other rank of the node has to do with what this one's lane carries.
  [[nodiscard]] bool is_alone_in_lane() const {
    return memory_.size() == 1 || operation_->lanes_apart;
  }
  /// This rank's input of a part, if that is what its lane carries: nothing to be summed in the
  /// node, and nothing to be converted. Else null.
  [[nodiscard]] const std::byte* input_as_carried(const FusedLayout::Part& part) const;
  /// A range of this rank's input that can be a message as it lies: input_as_carried(), of one
  /// segment, in the arena, where a message that outlasts a failed call finds it. Else null.
  [[nodiscard]] const std::byte* input_to_send(Range range) const;
  /// Where a message with a range of the result can be received as it will lie: in the output,
  /// under the conditions of input_to_send(). Null also if there is a consumer, or if the output
  /// meets the input, which may be on its way; `over_input`: it may be the input.
  [[nodiscard]] std::byte* output_to_fill(Range range, bool over_input) const;
  /// Writes wire elements to every rank's output or result slot.
  void spread_to_all(Range range, const std::byte* buffer, Range chunk, int slot);
  /// Hands this rank's result slot to the consumer, or copies it to the outputs.
  void deliver(Range chunk, int slot, WritePolicy stores) const;

  /// Reduces an inline call from the announcements.
  void reduce_payloads_to_self();
  /// Reduces a tiny call from the announcements, if it is as simple as most are: one sum, into one
  /// place, on every rank; or blocks to copy. False if it is another call, and nothing is done.
  [[nodiscard]] bool reduce_tiny_to_self();
  void reduce_payloads_to_buffer(int first, int count, std::byte* buffer);
  /// Reduces a range of what the node's ranks announced into wire elements at `buffer` +
  /// (position - range.begin); what is input_as_carried() only if `carried_too`.
  void sum_payloads(Range range, std::byte* buffer, bool carried_too);
  /// Hands wire elements at `buffer` + (position - range.begin) to the consumer, or copies them to
  /// the outputs. `scratch` has room for range.size() bytes.
  void deliver_wire(Range range, const std::byte* buffer, std::byte* scratch) const;
  /// Reduces wire elements, of which each of `values` has those of the whole layout, into this
  /// rank's outputs, or for its consumer.
  void deliver_sum(std::span<const std::byte* const> values);
  /// The result of a small call: wire elements of the whole layout.
  void deliver_small(const std::byte* buffer) const;
  /// What spread_to_all() and deliver() do, where this rank is_alone_in_lane().
  void deliver_own(Range range, const std::byte* buffer, int slot) const;

  /// The segment that an element of the part belongs to.
  [[nodiscard]] const Segment& segment(const FusedLayout::Part& part) const {
    return layout_.segments()[part.segment];
  }

 private:
  static constexpr std::size_t kMostTinySegments = 16;

  /// Where a local rank's segment lies. Of a call that is not inline.
  [[nodiscard]] const SharedSegment& shared(int peer, std::size_t segment) const {
    return directories_[static_cast<std::size_t>(peer)][segment];
  }
  void copy_part(std::size_t index, std::size_t first, std::size_t count, WritePolicy stores);
  [[nodiscard]] bool is_fetched(const Segment& segment, std::size_t index, int peer) const;
  [[nodiscard]] std::byte* fetched_from(int peer) const;
  [[nodiscard]] bool is_carried_as_it_is(const FusedLayout::Part& part) const;
  [[nodiscard]] std::optional<FusedLayout::Part> only_part(Range range) const;
  void find_directories();
  void publish(std::uint32_t flags) noexcept;
  void record() noexcept;
  [[nodiscard]] bool missing(int peer) const {
    return line(peer).sequence.load(std::memory_order_acquire) != sequence_;
  }
  [[nodiscard]] bool all_announced();
  [[nodiscard]] std::byte* payload_of(int peer) const {
    AnnounceLine& theirs = line(peer);
    return tiny_ ? theirs.directory.tiny_payload : theirs.payload;
  }
  [[nodiscard]] std::size_t place_in_payload(const FusedLayout::Part& part) const {
    if (tiny_) return tiny_places_[part.segment];
    const std::size_t narrower = size_of(layout_.wire(part.segment)) - size_of(segment(part).dtype);
    return part.position - part.first * narrower;
  }
  [[nodiscard]] bool places_tiny(std::span<const Segment> segments) noexcept;
  void copy_tiny_to_self() const;
  /// Ranges of at most so many bytes, one after the other, that cover the whole call.
  void for_each_range(std::size_t most, FunctionRef<void(Range)> visit) const;
  void wait_for_groups();
  [[nodiscard]] std::uint32_t memory_flags() const;
  [[nodiscard]] CallClass class_of(std::uint32_t flags, bool consumed) const;
  [[nodiscard]] bool is_overwritten(const Segment& segment) const;
  [[nodiscard]] bool sums_one_segment() const;
  void make_slots();
  void require_steps() const;
  void make_room_for_directory(std::uint64_t sequence);
  void fill_directory();
  void fill_payload();
  void find_places();
  void fill_places();
  void update_tiles(const FusedLayout::Part& part, std::size_t first, std::size_t count,
                    WritePolicy stores) const;
  void copy_places(std::size_t segment, std::size_t first, std::size_t count,
                   WritePolicy stores) const;
  template <class Address>
  void gather(const Segment& segment, int first, int count, Address address);
  void gather_inputs(const FusedLayout::Part& part, const Sources& sources);
  void gather_payloads(const FusedLayout::Part& part, int first, int count);
  void add_destinations(const FusedLayout::Part& part, int peer, Range chunk, int slot);
  void gather_outputs(const FusedLayout::Part& part, Range chunk, int slot);
  /// Reduces a part into this rank's output, or for its consumer; nothing if it is no destination.
  void reduce_part_to_self(const FusedLayout::Part& part, const Reduction& reduction,
                           std::span<const std::byte* const> sources, std::byte* scratch,
                           WritePolicy stores) const;
  void reduce_part_alone(const FusedLayout::Part& part, WritePolicy stores) const;
  void consume_by_all(const FusedLayout::Part& part, const std::byte* reduced) const;
  [[nodiscard]] bool is_source(const Segment& segment) const;
  [[nodiscard]] bool is_destination(const Segment& segment) const;
  [[nodiscard]] Reduction to_output(std::size_t segment) const;
  [[nodiscard]] Reduction to_wire(std::size_t segment) const;
  [[nodiscard]] std::vector<int> ranks_where(FunctionRef<bool(int)> peer_is_missing) const;

  const NodeMemory& memory_;
  const Topology& topology_;
  Waiter& waiter_;
  const Tuning& tuning_;
  AllocateShared allocate_shared_;
  mutable Workers workers_;

  const Operation* operation_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t waiting_since_ = 0;
  SpanLog* spans_ = nullptr;
  int arrived_ = 0;  ///< local ranks below this one have announced the call
  int last_ = 0;     ///< local rank
  FusedLayout layout_;
  Signature signature_;
  bool fits_inline_ = false;
  bool is_inline_learnt_ = false;
  bool tiny_ = false;  ///< the data, if there is any, is in the first cache line
  /// Where the segments of a tiny call lie there, from the first byte of its data.
  std::uint8_t tiny_places_[kMostTinySegments] = {};
  bool node_agrees_ = false;
  std::uint32_t own_flags_ = 0;
  std::uint32_t common_flags_ = 0;  ///< what all ranks of the node have set
  std::uint32_t any_flags_ = 0;     ///< what any rank of the node has set
  CallTime last_time_;              ///< to be announced
  CallTime announced_time_;         ///< in this call
  const StopFlag* stop_ = nullptr;
  std::atomic<bool> asks_to_stop_{false};
  std::span<SharedSegment> tables_[2];
  std::vector<const SharedSegment*> directories_;  ///< one per local rank, in this call
  std::size_t fetch_bytes_ = 0;
  std::unique_ptr<std::byte[]> fetch_buffer_;  ///< fetch_bytes_ from each other rank
  std::vector<PeerReader::Piece> pieces_;      ///< of one rank's memory
  std::vector<const std::byte*> sources_;      ///< what the part is reduced from
  std::vector<std::byte*> destinations_;       ///< the same; at most two for each local rank
  std::vector<std::uint64_t> places_;          ///< offsets of what updates write; empty: not shared
  std::vector<std::size_t> first_places_;      ///< of each segment, among them
};

}  // namespace tutti::collectives
