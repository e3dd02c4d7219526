// SPDX-License-Identifier: Apache-2.0
// NodeData: operations on the data of a call within a node, of which reductions and exchanges
// consist.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "collectives/node/announcement.hpp"
#include "collectives/node/block_streams.hpp"
#include "collectives/node/call_context.hpp"
#include "collectives/node/shared_updates.hpp"
#include "collectives/wait/slot_ring.hpp"

namespace tutti::collectives {

/// The origin of reduced elements: local ranks first .. first + count - 1, whose inputs were staged
/// (if they are not shared) as `chunk` in `slot`, or fetched (if `fetched` is not empty). A segment
/// with a single source has only that one, whichever ranks are given here.
struct Sources {
  Range chunk;
  std::size_t slot = 0;
  int first = 0;
  int count = 0;
  Range fetched{};              ///< the range passed to fetch()
  std::size_t result_slot = 0;  ///< slot for the chunk's results, if not in place
};

/// The data of the current call on all ranks of the node. A `slot` is one that a SlotRing has given
/// out, of a staged chunk or of its results.
///
/// A chunk moves as follows; a step is skipped if the data is already in the right memory:
///   input --stage--> own slot --reduce_to_all--> every rank's slot for results --deliver--> output
class NodeData {
 public:
  NodeData(const CallContext& call, const Announcement& announcement, const SharedUpdates& updates);

  /// Returns the ring from which a call takes its slots. Requires that all ranks of the node have
  /// announced a call that moves data.
  [[nodiscard]] SlotRing& slots() {
    if (!has_slots()) slots_.agree_on_length(call_.memory);
    return slots_;
  }
  /// Returns the ring of such inputs, under the same condition.
  [[nodiscard]] SlotRing& slots_for(Inputs inputs) {
    if (inputs != Inputs::swapped) return slots();
    if (swapped_.length() == 0) swapped_ = SlotRing::swapped_behind(slots(), call_.memory);
    return swapped_;
  }
  /// Returns the memory of a slot that this rank writes.
  [[nodiscard]] std::byte* own_slot(std::size_t slot) const {
    return slot_of(call_.memory.local_rank, slot);
  }
  /// True once ranks have used slots. Before that, their length is not known.
  [[nodiscard]] bool has_slots() const { return slots_.length() != 0; }
  /// Allocates room for the sums of a chunk, for calls with a consumer. Errors: out_of_memory.
  void make_room_for_sums();
  /// Copies this rank's inputs that peers cannot read into a slot of its own ring; with
  /// `for_others`, leaves out segments that this rank alone is a destination of.
  void stage(Range chunk, std::size_t slot, WritePolicy stores, bool for_others = false) const;
  /// Returns what the ranks of the node give each other in this call; null where an element has
  /// several sources, or where the blocks of a rank are not adjacent.
  [[nodiscard]] const BlockStreams* find_streams();
  /// The largest number of bytes that fetch() takes at a time; 0 where ranks cannot read each
  /// other's memory.
  [[nodiscard]] std::size_t fetch_bytes() const { return fetch_bytes_; }
  /// Copies the unmapped inputs of the other ranks into this rank's buffer; with `own_only`, only
  /// those of segments that this rank is a destination of. Errors: communication.
  void fetch(Range chunk, bool own_only);
  /// Copies a range of a peer's outputs to this rank's outputs. Errors: communication.
  void fetch_results(Range range, int peer);
  /// Reduces into every rank's output (in place) or result slot.
  void reduce_to_all(Range range, const Sources& sources, WritePolicy stores);
  /// Reduces into this rank's own output, or for its consumer.
  void reduce_to_self(Range range, const Sources& sources, WritePolicy stores);
  /// Reduces for this rank's consumer, and copies the updated arrays to all other ranks of the
  /// node. Only where the call's class says that updates can be shared.
  void update_for_all(Range range, const Sources& sources, WritePolicy stores);
  /// Copies the inputs that this rank wants from other ranks directly to its outputs, where each
  /// segment has one source: from arenas, or through the kernel. Errors: communication.
  void copy_to_self(WritePolicy stores);
  /// In a job of one rank: reduces or consumes all elements, without waiting and without a staging
  /// copy.
  void reduce_alone(WritePolicy stores) const;
  /// Reduces into wire elements at `buffer` + (position - range.begin).
  void reduce_to_buffer(Range range, const Sources& sources, std::byte* buffer);
  /// Returns this rank's input of a part, if its lane carries exactly that: without a sum in the
  /// node, and without a conversion. Otherwise null.
  [[nodiscard]] const std::byte* input_as_carried(const FusedLayout::Part& part) const;
  /// Returns the address of a range of this rank's input that can be sent as it lies: it is
  /// input_as_carried(), belongs to one segment, and is in the arena, where it stays valid for
  /// messages that outlast a failed call. Otherwise null.
  [[nodiscard]] const std::byte* input_to_send(Range range) const;
  /// Returns the address in the output where a range of the result can be received directly, under
  /// the conditions of input_to_send(). Null also if there is a consumer, or if the output overlaps
  /// the input, which may still be being sent; with `over_input` it may be the same memory as the
  /// input.
  [[nodiscard]] std::byte* output_to_fill(Range range, bool over_input) const;
  /// Writes wire elements to every rank's output or result slot.
  void spread_to_all(Range range, const std::byte* buffer, Range chunk, std::size_t slot);
  /// Passes the results in this rank's slot to the consumer, or copies them to the outputs.
  void deliver(Range chunk, std::size_t slot, WritePolicy stores) const;

  /// Reduces an inline call from the payloads.
  void reduce_payloads_to_self();
  /// Reduces the payloads of the local ranks first .. first + count - 1 into wire elements of the
  /// whole layout.
  void reduce_payloads_to_buffer(int first, int count, std::byte* buffer);
  /// Reduces a range of the payloads of the node's ranks into wire elements at `buffer` + (position
  /// - range.begin). Parts that are input_as_carried() are included only if `carried_too`.
  void sum_payloads(Range range, std::byte* buffer, bool carried_too);
  /// Passes wire elements at `buffer` + (position - range.begin) to the consumer, or copies them to
  /// the outputs. `scratch` has room for range.size() bytes.
  void deliver_wire(Range range, const std::byte* buffer, std::byte* scratch) const;
  /// Reduces `values`, each of which has the wire elements of the whole layout, into this rank's
  /// outputs, or for its consumer.
  void deliver_sum(std::span<const std::byte* const> values);
  /// Delivers the result of a small call, given as wire elements of the whole layout.
  void deliver_small(const std::byte* buffer) const;
  /// Does what spread_to_all() and deliver() do, for a rank that is alone in its lane.
  void deliver_own(Range range, const std::byte* buffer) const;

 private:
  /// Returns a local rank's memory of a slot.
  [[nodiscard]] std::byte* slot_of(int peer, std::size_t slot) const {
    const auto owner = static_cast<std::size_t>(SlotRing::is_of_other(slot) ? 1 - peer : peer);
    const Peer& other = call_.memory.peers[owner];
    return other.arena + other.control().ring + SlotRing::offset_of(slot);
  }
  void copy_part(std::size_t index, std::size_t first, std::size_t count, WritePolicy stores);
  [[nodiscard]] bool is_fetched(const Segment& segment, std::size_t index, int peer) const;
  [[nodiscard]] std::byte* fetched_from(int peer) const;
  [[nodiscard]] bool is_carried_as_it_is(const FusedLayout::Part& part) const;
  [[nodiscard]] std::optional<FusedLayout::Part> only_part(Range range) const;
  /// Calls visit() for consecutive ranges of at most `most` bytes that cover the whole call.
  void for_each_range(std::size_t most, FunctionRef<void(Range)> visit) const;
  template <class Address>
  void gather(const Segment& segment, int first, int count, Address address);
  void gather_inputs(const FusedLayout::Part& part, const Sources& sources);
  void gather_payloads(const FusedLayout::Part& part, int first, int count);
  void add_destinations(const FusedLayout::Part& part, int peer, Range chunk, std::size_t slot);
  void gather_outputs(const FusedLayout::Part& part, Range chunk, std::size_t slot);
  /// Reduces a part into this rank's output, or for its consumer. Does nothing if this rank is no
  /// destination.
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
  SlotRing swapped_;  ///< behind slots_, on a node of two ranks
  BlockStreams streams_;
  std::unique_ptr<std::byte[]> sums_;  ///< sums of a chunk for a consumer; null until needed
  std::size_t fetch_bytes_ = 0;
  std::unique_ptr<std::byte[]> fetch_buffer_;  ///< fetch_bytes_ for each other rank
  std::vector<PeerReader::Piece> pieces_;      ///< to be read from one rank
  std::vector<const std::byte*> sources_;      ///< addresses from which the part is reduced
  /// Addresses of its results, at most two for each local rank.
  std::vector<std::byte*> destinations_;
};

}  // namespace tutti::collectives
