// SPDX-License-Identifier: Apache-2.0
// Call: a collective call as one rank sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/choice/tuning.hpp"
#include "collectives/job/fused_layout.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/job/workers.hpp"
#include "collectives/node/announcement.hpp"
#include "collectives/node/call_context.hpp"
#include "collectives/node/node_data.hpp"
#include "collectives/node/shared_updates.hpp"
#include "collectives/node/steps.hpp"
#include "collectives/node/tiny_call.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/spans.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// The current call of this rank, of which there is one at a time. Its parts do the work.
class Call {
 public:
  Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
       AllocateShared allocate_shared);

  /// Does everything that may fail on this rank alone, before the other ranks know of the call.
  /// `wide`: see FusedLayout. Errors: out_of_memory; invalid_argument, if chunks are so small that
  /// the call would have millions of them. A call without segments cannot fail.
  void prepare(const Operation& operation, bool wide, const Router& router);
  /// Does the same for a tiny call in one node, where it cannot fail. Returns false if the call is
  /// not tiny.
  [[nodiscard]] bool prepare_tiny(const Operation& operation) noexcept {
    return tiny_.prepare(operation);
  }
  /// Assigns the next sequence number to the prepared call. `begun`: its beginning, in ticks.
  void begin(std::uint64_t begun) noexcept {
    ++context_.sequence;
    announcement_.begin(begun);
    steps_.begin();
  }

  [[nodiscard]] Announcement& announcement() { return announcement_; }
  [[nodiscard]] const Announcement& announcement() const { return announcement_; }
  [[nodiscard]] Steps& steps() { return steps_; }
  [[nodiscard]] TinyCall& tiny() { return tiny_; }
  [[nodiscard]] NodeData& data() { return data_; }
  [[nodiscard]] const NodeData& data() const { return data_; }

  [[nodiscard]] const Operation& operation() const { return *context_.operation; }
  [[nodiscard]] std::uint64_t sequence() const { return context_.sequence; }
  [[nodiscard]] const Signature& signature() const { return context_.signature; }
  [[nodiscard]] const FusedLayout& layout() const { return context_.layout; }
  /// Returns the route of the data; it is the same on all ranks once all ranks of the node have
  /// announced the call.
  [[nodiscard]] Route route() const { return context_.route; }
  /// Corrects the route once all ranks of the node have announced: if some have not announced their
  /// data, all data goes by its path.
  void settle_route() {
    if (is_carried(route()) && !announcement_.is_inline()) context_.route = Route::by_path;
  }
  /// See FusedLayout::interleave(). All ranks call it alike, before any data moves.
  void interleave(const FusedLayout::Streams& streams, std::size_t strips) {
    context_.layout.interleave(streams, strips);
  }
  /// Returns the segment to which the part belongs.
  [[nodiscard]] const Segment& segment(const FusedLayout::Part& part) const {
    return context_.segment(part);
  }
  /// True if no other rank of the node contributes to the data of this rank's lane.
  [[nodiscard]] bool is_alone_in_lane() const { return context_.is_alone_in_lane(); }

  [[nodiscard]] const NodeMemory& memory() const { return context_.memory; }
  [[nodiscard]] const Topology& topology() const { return context_.topology; }
  [[nodiscard]] Waiter& waiter() const { return context_.waiter; }
  [[nodiscard]] Workers& workers() const { return context_.workers; }

  /// The line in which a local rank announces this call.
  [[nodiscard]] AnnounceLine& line(int peer) const { return context_.line(peer); }
  /// The line in which the node's first rank passes on the agreement of the nodes.
  [[nodiscard]] AgreementLine& agreement_line() const {
    return memory().peers[0].wide().agreement[sequence() & 1];
  }

  /// Sets the phase of the call in this rank's record.
  void mark(Phase phase) { memory().control().calls.mark(sequence(), phase); }
  /// Records the activities of further calls in `spans`; null ends that.
  void keep_in(SpanLog* spans) { context_.spans = spans; }
  [[nodiscard]] SpanLog* spans() const { return context_.spans; }
  void turn_to(Activity activity) const { context_.turn_to(activity); }

 private:
  void require_steps() const;
  void make_ring();

  AllocateShared allocate_shared_;
  Workers workers_;
  CallContext context_;
  Steps steps_;
  TinyCall tiny_;
  SharedUpdates updates_;
  Announcement announcement_;
  NodeData data_;
};

}  // namespace tutti::collectives
