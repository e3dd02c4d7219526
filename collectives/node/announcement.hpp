// SPDX-License-Identifier: Apache-2.0
// How the ranks of a node tell each other of a call, and compare what they were told.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/choice/call_time.hpp"
#include "collectives/choice/path.hpp"
#include "collectives/node/call_context.hpp"
#include "collectives/node/shared_updates.hpp"
#include "collectives/node/tiny_call.hpp"

namespace tutti::collectives {

/// This rank's announcement of the current call, and those of the other ranks of its node.
class Announcement {
 public:
  Announcement(const CallContext& call, const TinyCall& tiny, SharedUpdates& updates,
               AllocateShared allocate_shared);

  /// Makes room for it. Local, before the call has its number. Errors: out_of_memory.
  void make_room();
  /// The call has its number. `begun`: when it began, in ticks.
  void begin(std::uint64_t begun) noexcept { begun_ = begun; }

  /// Announcements say from now on whether this flag is set.
  void watch(const StopFlag& stop) { stop_ = &stop; }
  /// Announcements say so from now on whatever the flag says. Any thread.
  void request_stop() { asks_to_stop_.store(true, std::memory_order_relaxed); }
  /// True if a rank of the node announced this call with a request to stop.
  [[nodiscard]] bool stop_requested() const { return (any_flags_ & kStopRequested) != 0; }

  /// The class that the call has if all ranks have their data where this one has.
  [[nodiscard]] CallClass own_class() const;

  /// Tells the node that this rank has called, and where its data is; also its inputs, if its route
  /// is that they travel here.
  void announce() noexcept;
  /// Tells the node that this rank's call is invalid.
  void announce_refusal() noexcept;
  /// True if all ranks of the node announce within the time that most waits take, all with a
  /// payload that is one whatever the memory, and none asks to stop: how small calls end, but for
  /// the data. Not after false, which says nothing: wait_for_all() goes on.
  [[nodiscard]] bool finds_all_alike();
  /// Waits until all ranks of the node have announced, and reads their flags and signatures.
  void wait_for_all();

  /// Since when this rank has waited for others to announce the call, in ticks; 0 if it did not.
  [[nodiscard]] std::uint64_t waiting_since() const { return waiting_since_; }
  /// From now on it waits for other nodes.
  void wait_for_other_nodes() {
    if (waiting_since_ == 0) waiting_since_ = ticks();
    call_.turn_to(Activity::wait_for_nodes);
  }
  /// The rank of this node that announced it last, as far as this one saw: itself, if it found all
  /// others there.
  [[nodiscard]] int last_rank() const { return call_.topology.local_ranks()[last_]; }

  /// True if every rank of the node announced this rank's signature and none refused its call.
  [[nodiscard]] bool node_agrees() const { return node_agrees_; }
  /// The class of this call, if it has data: calls of one class take the same path.
  [[nodiscard]] CallClass call_class() const;
  /// Says in the next announcement how long a call took.
  void report_time(const CallTime& time) { last_time_ = time; }
  /// The time of the call before this one, as its announcements have it: see LongestTime.
  [[nodiscard]] std::uint32_t longest_time() const;

  /// True if all inputs of all ranks of the node lie in arenas.
  [[nodiscard]] bool inputs_shared() const { return (common_flags_ & kInputsShared) != 0; }
  /// True if the inputs of all ranks of the node travel in the announcements.
  [[nodiscard]] bool is_inline() const { return (common_flags_ & kPayload) != 0; }
  /// True if all ranks of the node may write all outputs of each other.
  [[nodiscard]] bool in_place() const { return (common_flags_ & kOutputsInPlace) != 0; }

  /// A local rank's offsets of a segment, in a call that is not inline.
  [[nodiscard]] const SharedSegment& shared(int peer, std::size_t segment) const {
    return directories_[static_cast<std::size_t>(peer)][segment];
  }
  /// The first byte of a local rank's inputs in its announcement. Of a call that is inline.
  [[nodiscard]] std::byte* payload_of(int peer) const {
    AnnounceLine& theirs = call_.line(peer);
    return call_.route == Route::tiny ? theirs.directory.tiny_payload : theirs.payload;
  }
  /// The place of a part in a payload, in bytes from its beginning.
  [[nodiscard]] std::size_t offset_in_payload(const FusedLayout::Part& part) const {
    if (call_.route == Route::tiny) return tiny_.offset_of(part.segment);
    const std::size_t narrower =
        size_of(call_.layout.wire(part.segment)) - size_of(call_.segment(part).dtype);
    return part.position - part.first * narrower;
  }

 private:
  [[nodiscard]] std::uint32_t memory_flags() const;
  [[nodiscard]] CallClass class_of(std::uint32_t flags, bool consumed) const;
  void fill_directory();
  void fill_payload();
  void publish(std::uint32_t flags) noexcept;
  void record() noexcept;
  [[nodiscard]] bool missing(int peer) const {
    return call_.line(peer).sequence.load(std::memory_order_acquire) != call_.sequence;
  }
  [[nodiscard]] bool all_announced();
  void find_directories();

  const CallContext& call_;
  const TinyCall& tiny_;
  SharedUpdates& updates_;
  AllocateShared allocate_shared_;
  const StopFlag* stop_ = nullptr;
  std::atomic<bool> asks_to_stop_{false};
  std::span<SharedSegment> tables_[2];

  std::uint64_t begun_ = 0;
  std::uint64_t waiting_since_ = 0;
  int arrived_ = 0;  ///< local ranks below this one have announced the call
  int last_ = 0;     ///< local rank
  bool node_agrees_ = false;
  std::uint32_t own_flags_ = 0;
  std::uint32_t common_flags_ = 0;                 ///< what all ranks of the node have set
  std::uint32_t any_flags_ = 0;                    ///< what any rank of the node has set
  CallTime last_time_;                             ///< to be announced
  CallTime announced_time_;                        ///< in this call
  std::vector<const SharedSegment*> directories_;  ///< one per local rank, in this call
};

}  // namespace tutti::collectives
