// SPDX-License-Identifier: Apache-2.0
// A collective call as one rank sees it.
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

/// The current call of this rank, one at a time: which it is, and its parts, each with what it
/// does.
class Call {
 public:
  Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
       AllocateShared allocate_shared);

  /// All that may fail on this rank alone, while the other ranks know nothing of the call. `wide`:
  /// see FusedLayout. Errors: out_of_memory; invalid_argument, if chunks are so small that a call
  /// would have millions of them. A call without segments has none.
  void prepare(const Operation& operation, bool wide, const Router& router);
  /// prepare() for a tiny call in one node, which cannot fail here. False if this is another call.
  [[nodiscard]] bool prepare_tiny(const Operation& operation) noexcept {
    return tiny_.prepare(operation);
  }
  /// Draws the next sequence number for the call that was prepared. `begun`: in ticks.
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
  /// The route of the data; once all ranks of the node have announced the call, on all alike.
  [[nodiscard]] Route route() const { return context_.route; }
  /// All ranks of the node have announced: data that some have not announced goes by its path.
  void settle_route() {
    if (is_carried(route()) && !announcement_.is_inline()) context_.route = Route::by_path;
  }
  /// See FusedLayout. All ranks alike, before any data moves.
  void interleave(const FusedLayout::Streams& streams, std::size_t strips) {
    context_.layout.interleave(streams, strips);
  }
  /// The segment that an element of the part belongs to.
  [[nodiscard]] const Segment& segment(const FusedLayout::Part& part) const {
    return context_.segment(part);
  }
  /// True if no other rank of the node has to do with what this one's lane carries.
  [[nodiscard]] bool is_alone_in_lane() const { return context_.is_alone_in_lane(); }

  [[nodiscard]] const NodeMemory& memory() const { return context_.memory; }
  [[nodiscard]] const Topology& topology() const { return context_.topology; }
  [[nodiscard]] Waiter& waiter() const { return context_.waiter; }
  [[nodiscard]] Workers& workers() const { return context_.workers; }

  /// The line in which a local rank announces this call.
  [[nodiscard]] AnnounceLine& line(int peer) const { return context_.line(peer); }
  /// The line in which the node's first rank passes on what the nodes have agreed on.
  [[nodiscard]] AgreementLine& agreement_line() const {
    return memory().first().agreement[sequence() & 1];
  }

  /// Notes in this rank's record how far the call is.
  void mark(Phase phase) { memory().control().calls.mark(sequence(), phase); }
  /// Records from now on what this rank does when; null: not any more.
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
