// SPDX-License-Identifier: Apache-2.0
// Announcement: the ranks of a node tell each other of a call, and compare their signatures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/choice/call_time.hpp"
#include "collectives/choice/path.hpp"
#include "collectives/job/lines_to_write.hpp"
#include "collectives/node/call_context.hpp"
#include "collectives/node/shared_updates.hpp"
#include "collectives/node/tiny_call.hpp"

namespace tutti::collectives {

/// This rank's announcement of the current call, and those of the other ranks of its node.
class Announcement {
 public:
  Announcement(const CallContext& call, const TinyCall& tiny, SharedUpdates& updates,
               AllocateShared allocate_shared);

  /// Makes room for the announcement's table. Local, called before the call has its sequence
  /// number. Errors: out_of_memory.
  void make_room();
  /// Starts the announcement of a call that has its sequence number. `begun`: its beginning, in
  /// ticks.
  void begin(std::uint64_t begun) noexcept { begun_ = begun; }

  /// Makes all further announcements tell whether this flag is set.
  void watch(const StopFlag& stop) { stop_ = &stop; }
  /// Makes all further announcements ask to stop, whatever the flag says. Callable from any thread.
  void request_stop() { asks_to_stop_.store(true, std::memory_order_relaxed); }
  /// True if a rank of the node announced this call with a request to stop.
  [[nodiscard]] bool stop_requested() const { return (any_flags_ & kStopRequested) != 0; }

  /// Returns the class that the call has if all ranks have their data in the same memory as this
  /// one.
  [[nodiscard]] CallClass own_class() const;

  /// Tells the node that this rank has called, and where its data lies. Includes the inputs, if the
  /// route says so.
  /// `first_staged`: what stage_first() returned.
  void announce(std::uint32_t first_staged = 0) noexcept;
  /// Tells the node that this rank's call is invalid.
  void announce_refusal() noexcept;
  /// True if all ranks of the node announce within the time that most waits take, all of them
  /// inline wherever their data lies, and none asks to stop. This is how most small calls end,
  /// apart from their data. False is no verdict: the caller then goes on with wait_for_all(), and
  /// does not ask again.
  [[nodiscard]] bool finds_all_alike();
  /// Waits until all ranks of the node have announced, and reads their flags and signatures.
  void wait_for_all();

  /// Returns when this rank began to wait for others to announce the call, in ticks; 0 if it did
  /// not wait.
  [[nodiscard]] std::uint64_t waiting_since() const { return waiting_since_; }
  /// Records that the call waits for other nodes from now on.
  void wait_for_other_nodes() {
    if (waiting_since_ == 0) waiting_since_ = ticks();
    call_.turn_to(Activity::wait_for_nodes);
  }
  /// Returns the rank of this node that announced the call last, as far as this rank saw: itself,
  /// if it found all others there.
  [[nodiscard]] int last_rank() const { return call_.topology.local_ranks()[last_]; }

  /// True if every rank of the node announced this rank's signature and none refused its call.
  [[nodiscard]] bool node_agrees() const { return node_agrees_; }
  /// Returns the class of this call, if it has data. Calls of one class take the same path.
  [[nodiscard]] CallClass call_class() const;
  /// Sets the duration of a call, to be reported in the next announcement.
  void report_time(const CallTime& time) { last_time_ = time; }
  /// Returns the duration of the previous call from the announcements of this one, see LongestTime.
  [[nodiscard]] std::uint32_t longest_time() const;

  /// True if all inputs of all ranks of the node lie in arenas.
  [[nodiscard]] bool inputs_shared() const { return (common_flags_ & kInputsShared) != 0; }
  /// True if the inputs of all ranks of the node travel in the announcements.
  [[nodiscard]] bool is_inline() const { return (common_flags_ & kPayload) != 0; }
  /// True if all ranks of the node had staged their first chunks for such inputs when they
  /// announced the call, and the results go to consumers on all of them, or on none.
  [[nodiscard]] bool first_staged(Inputs inputs) const {
    return (common_flags_ & (inputs == Inputs::swapped ? kFirstSwapped : kFirstStaged)) != 0 &&
           (common_flags_ & kConsumed) == (any_flags_ & kConsumed);
  }
  /// True if all ranks of the node may write all outputs of each other.
  [[nodiscard]] bool in_place() const { return (common_flags_ & kOutputsInPlace) != 0; }

  /// Returns the offsets of a segment in a local rank's memory. Requires a call that is not inline.
  [[nodiscard]] const SharedSegment& shared(int peer, std::size_t segment) const {
    return directories_[static_cast<std::size_t>(peer)][segment];
  }
  /// Returns the first byte of a local rank's inputs in its announcement. Requires an inline call.
  [[nodiscard]] std::byte* payload_of(int peer) const {
    AnnounceLine& theirs = call_.line(peer);
    if (call_.route == Route::tiny) return theirs.directory.tiny_payload;
    const std::size_t bytes = call_.layout.total();
    if (bytes <= kShortPayload) return theirs.payload;
    if (bytes > kInlineInNode) return call_.wide_payload(peer);
    const auto slot = peer == call_.memory.local_rank
                          ? payload_slot_
                          : static_cast<std::uint32_t>(theirs.flags) >> kPayloadSlotShift;
    return call_.memory.peers[static_cast<std::size_t>(peer)].control().payloads[slot];
  }
  /// The lines that this rank asks for while it waits for the announcements of others.
  [[nodiscard]] LinesToWrite& lines_to_write() { return lines_to_write_; }
  /// Returns the offset of a part in a payload, in bytes.
  [[nodiscard]] std::size_t offset_in_payload(const FusedLayout::Part& part) const {
    if (call_.route == Route::tiny) return tiny_.offset_of(part.segment);
    const std::size_t narrower =
        size_of(call_.layout.wire(part.segment)) - size_of(call_.segment(part).dtype);
    return part.position - part.first * narrower;
  }

 private:
  /// True if the call's payload lies in ControlBlock::payloads.
  [[nodiscard]] bool has_slot() const {
    const std::size_t bytes = call_.layout.total();
    return bytes > kShortPayload && bytes <= kInlineInNode;
  }
  [[nodiscard]] std::uint32_t next_slot() const { return (payload_slot_ + 1) % kPayloadSlots; }
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
  int last_ = 0;     ///< local rank that announced last, as far as this rank saw
  bool node_agrees_ = false;
  std::uint32_t payload_slot_ = 0;  ///< of this rank's last payload that has a slot
  LinesToWrite lines_to_write_;
  std::uint32_t own_flags_ = 0;
  std::uint32_t common_flags_ = 0;                 ///< set by all ranks of the node
  std::uint32_t any_flags_ = 0;                    ///< set by any rank of the node
  CallTime last_time_;                             ///< to be announced next
  CallTime announced_time_;                        ///< announced in this call
  std::vector<const SharedSegment*> directories_;  ///< of each local rank, in this call
};

}  // namespace tutti::collectives
