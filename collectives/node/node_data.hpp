// SPDX-License-Identifier: Apache-2.0
// The verbs on the data of a call within a node, which the reductions and exchanges are written in.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "collectives/node/announcement.hpp"
#include "collectives/node/call_context.hpp"
#include "collectives/node/shared_updates.hpp"
#include "collectives/wait/slot_ring.hpp"

namespace tutti::collectives {

/// Where reduced elements come from: local ranks first .. first + count - 1, whose inputs were
/// staged (if they are not shared) as `chunk` in `slot`, or fetched (if `fetched` is not empty). A
/// segment with one source has that as its only source, whatever ranks are asked for.
struct Sources {
  Range chunk;
  std::size_t slot = 0;
  int first = 0;
  int count = 0;
  Range fetched{};              ///< what fetch() was called with
  std::size_t result_slot = 0;  ///< of the chunk's results, where they are not written in place
};

/// The data of the current call, of all ranks of the node. A `slot` is an offset in the ring of
/// slots(), of a chunk that is staged, or of its results.
///
/// A chunk's data moves like this, where a step is skipped if the memory is already the right one:
///   input --stage--> own slot --reduce_to_all--> every rank's slot for results --deliver--> output
class NodeData {
 public:
  NodeData(const CallContext& call, const Announcement& announcement, const SharedUpdates& updates);

  /// The places of the next slots of a call. Of a call that all ranks of the node have announced,
  /// in which data moves.
  [[nodiscard]] SlotRing& slots() {
    if (slots_.length() == 0) slots_.agree_on_length(call_.memory);
    return slots_;
  }
  /// Calls whose results go to a consumer have room for the sums of a chunk from now on.
  /// Errors: out_of_memory.
  void make_room_for_sums();
  /// Copies this rank's inputs that peers cannot read into a slot of its ring.
  void stage(Range chunk, std::size_t slot, WritePolicy stores) const;
  /// The most that fetch() takes at a time; 0 where ranks cannot read each other's memory.
  [[nodiscard]] std::size_t fetch_bytes() const { return fetch_bytes_; }
  /// Copies here what this process cannot read of the other ranks' inputs; with `own_only`, of the
  /// segments that this rank is a destination of. Errors: communication.
  void fetch(Range chunk, bool own_only);
  /// Copies to this rank's outputs what a peer has in its own. Errors: communication.
  void fetch_results(Range range, int peer);
  /// Reduces into every rank's output (in place) or slot for results.
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
  /// Writes wire elements to every rank's output or slot for results.
  void spread_to_all(Range range, const std::byte* buffer, Range chunk, std::size_t slot);
  /// Hands this rank's slot for results to the consumer, or copies it to the outputs.
  void deliver(Range chunk, std::size_t slot, WritePolicy stores) const;

  /// Reduces an inline call from the announcements.
  void reduce_payloads_to_self();
  /// Reduces what the local ranks first .. first + count - 1 announced into wire elements of the
  /// whole layout.
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
  /// spread_to_all() and deliver() in one, for a rank that is alone in its lane.
  void deliver_own(Range range, const std::byte* buffer) const;

 private:
  [[nodiscard]] std::byte* slot_of(int peer, std::size_t slot) const {
    const Peer& other = call_.memory.peers[static_cast<std::size_t>(peer)];
    return other.arena + other.control().ring + slot;
  }
  void copy_part(std::size_t index, std::size_t first, std::size_t count, WritePolicy stores);
  [[nodiscard]] bool is_fetched(const Segment& segment, std::size_t index, int peer) const;
  [[nodiscard]] std::byte* fetched_from(int peer) const;
  [[nodiscard]] bool is_carried_as_it_is(const FusedLayout::Part& part) const;
  [[nodiscard]] std::optional<FusedLayout::Part> only_part(Range range) const;
  /// Ranges of at most so many bytes, one after the other, that cover the whole call.
  void for_each_range(std::size_t most, FunctionRef<void(Range)> visit) const;
  template <class Address>
  void gather(const Segment& segment, int first, int count, Address address);
  void gather_inputs(const FusedLayout::Part& part, const Sources& sources);
  void gather_payloads(const FusedLayout::Part& part, int first, int count);
  void add_destinations(const FusedLayout::Part& part, int peer, Range chunk, std::size_t slot);
  void gather_outputs(const FusedLayout::Part& part, Range chunk, std::size_t slot);
  /// Reduces a part into this rank's output, or for its consumer; nothing if it is no destination.
  void reduce_part_to_self(const FusedLayout::Part& part, const Reduction& reduction,
                           std::span<const std::byte* const> sources, std::byte* scratch,
                           WritePolicy stores) const;
  void reduce_part_alone(const FusedLayout::Part& part, WritePolicy stores) const;
  void consume_by_all(const FusedLayout::Part& part, const std::byte* reduced) const;
  [[nodiscard]] Reduction to_wire(std::size_t segment) const;

  const CallContext& call_;
  const Announcement& announcement_;
  const SharedUpdates& updates_;
  SlotRing slots_;
  std::unique_ptr<std::byte[]> sums_;  ///< of a chunk, on their way to a consumer; null before one
  std::size_t fetch_bytes_ = 0;
  std::unique_ptr<std::byte[]> fetch_buffer_;  ///< fetch_bytes_ from each other rank
  std::vector<PeerReader::Piece> pieces_;      ///< of one rank's memory
  std::vector<const std::byte*> sources_;      ///< what the part is reduced from
  std::vector<std::byte*> destinations_;       ///< the same; at most two for each local rank
};

}  // namespace tutti::collectives
