// SPDX-License-Identifier: Apache-2.0
// NodeMemory, the first interface to other ranks: the memory that the ranks of a node share.
//
// Every rank has one arena. Its first bytes are a ControlBlock; the rest holds replicas, push
// buffers and scratch. All ranks of the node have all arenas mapped, each at an address of its own,
// so what crosses between ranks is an offset, never a pointer. A group of some of the ranks uses
// the same arenas, with a separate ControlBlock of each member.
//
// In a job the arenas are shared mappings between processes (runtime/job/arena.cpp); in tests they
// are plain memory shared by threads that play the ranks (runtime/local).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/job/pace.hpp"
#include "collectives/job/processor_mask.hpp"
#include "collectives/wait/long_waits.hpp"
#include "collectives/wait/peer_reader.hpp"
#include "collectives/wait/record.hpp"

namespace tutti::collectives {

/// The distance between data that different ranks write. It covers memory that may be one cache
/// line, or is prefetched together: two lines of 64 bytes on x86-64; on Arm lines of 64 (most), 128
/// (Apple) or 256 (A64FX).
#if defined(__aarch64__)
inline constexpr std::size_t kLineBytes = 256;
#else
inline constexpr std::size_t kLineBytes = 128;
#endif
/// Size of the largest payload of an announcement. Within a node calls are tuned to use no more
/// than kInlineInNode bytes, because other paths are faster beyond.
inline constexpr std::size_t kInlineBytes = 131072;
inline constexpr std::size_t kInlineInNode = 8192;
/// Payloads of up to kShortPayload bytes lie in the announcement's line, those of up to
/// kInlineInNode in one of kPayloadSlots, in turn, and larger ones in a WideControlBlock.
inline constexpr std::size_t kShortPayload = 64;
inline constexpr std::size_t kPayloadSlots = 3;
/// Sizes of one rank's description of its own call, and of the mismatch report.
inline constexpr std::size_t kTextBytes = 1024;
inline constexpr std::size_t kReportBytes = 4096;
/// Stands for an offset where there is no buffer.
inline constexpr std::uint64_t kNoBuffer = ~std::uint64_t{0};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The signature of a collective call, which must be equal on all ranks.
struct Signature {
  std::uint64_t keys = 0;  ///< digest of keys, shapes, dtypes, updater, root and size, in order
  std::uint64_t what = 0;  ///< kind, reduction, and in the upper half Operation::check

  static constexpr int kCheckShift = 32;
  [[nodiscard]] Signature without_check() const {
    return {keys, what & ((std::uint64_t{1} << kCheckShift) - 1)};
  }
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// The buffers of one segment as distances from the first byte of the rank's arena, see
/// NodeMemory::offset_of(). The second output may be missing (kNoBuffer).
struct SharedSegment {
  std::uint64_t input;
  std::uint64_t output;
  std::uint64_t second_output;
  friend bool operator==(const SharedSegment&, const SharedSegment&) = default;
};

/// Bytes of data in the first cache line of an announcement: what the rest of it leaves.
inline constexpr std::size_t kTinyBytes = 32;

/// The location of a call's segments: a single one is stored here, several in a table in the arena.
/// A tiny call, whose only segment fits, stores its data here instead.
union SegmentDirectory {
  std::uint64_t table;  ///< offset of SharedSegment[number of segments], if there are several
  SharedSegment only;   ///< the segment, if there is only one
  std::byte tiny_payload[kTinyBytes];
};

/// The announcement of a call by one rank. Written by that rank, read by all others of its node.
///
/// There are two lines, used in turn by sequence number. A rank that writes the line of call k + 2
/// has completed k + 1, so every rank has announced k + 1, so every rank has read the lines of call
/// k: a line is never overwritten while somebody reads it. Readers test the sequence number for
/// equality, because a fast rank may already have announced k + 1 (in the other line).
///
/// The first 64 bytes are all that has to be read for a tiny call, or for a call without a payload.
/// A short payload begins on a cache line. Larger ones do not lie here: see
/// ControlBlock::payloads and WideControlBlock::payloads.
struct alignas(kLineBytes) AnnounceLine {
  std::atomic<std::uint64_t> sequence{0};
  Signature signature;
  std::uint32_t last_end = 0;       ///< CallTime::end of this rank's last call
  std::uint16_t last_duration = 0;  ///< CallTime::packed of the same call
  std::uint16_t flags = 0;          ///< AnnounceFlags
  /// The segments of a call that is not inline, or a tiny payload.
  SegmentDirectory directory = {};
  alignas(64) std::byte payload[kShortPayload];
};
static_assert(offsetof(AnnounceLine, directory) + sizeof(SegmentDirectory) == 64);
static_assert(offsetof(AnnounceLine, payload) == 64);

enum AnnounceFlags : std::uint16_t {
  kRefused = 1,          ///< this rank's call is invalid; ControlBlock::text has the reason
  kInputsShared = 2,     ///< all inputs lie in the arena
  kInputsPrivate = 4,    ///< no input lies in the arena
  kPayload = 16,         ///< the inputs are in the line or its payload
  kOutputsInPlace = 8,   ///< all outputs lie in the arena, and peers may write them
  kStopRequested = 32,   ///< this rank has been asked to stop
  kInputsApart = 64,     ///< no output of a segment is its input
  kConsumed = 128,       ///< the results are passed to a consumer
  kSharesUpdates = 256,  ///< peers may also update for that consumer; the arrays are in the payload
  kFirstStaged = 512,    ///< the call's first chunk is in the rank's ring, or it stages nothing
  kFirstSwapped = 1024,  ///< the same of the slots that two ranks swap
};
/// The upper bits of the flags have the slot of the payload, whether there is one or not.
inline constexpr int kPayloadSlotShift = 14;
inline constexpr std::uint32_t kFlagsOnly = (1U << kPayloadSlotShift) - 1;
static_assert(kPayloadSlots <= 4);

/// The line in which the first rank of a node passes on the result of other nodes: the agreement,
/// whether any rank was asked to stop, which rank came last, the longest duration of the previous
/// call on all nodes and, for small payloads, the result. There are two lines, used in turn like
/// AnnounceLine.
struct alignas(kLineBytes) AgreementLine {
  std::atomic<std::uint64_t> sequence{0};
  std::uint32_t agreed = 0;
  std::uint32_t stop_requested = 0;
  std::int32_t last_rank = 0;
  std::uint32_t last_time = 0;  ///< encoded as in LongestTime; the payload begins right behind it
  std::byte payload[kInlineBytes];
};

/// The first bytes of an arena. A group that is made later has another one in the same arena.
/// Members that different ranks write in each call lie on different lines.
struct ControlBlock {
  std::uint64_t nonce = 0;    ///< lets peers verify that they have mapped the right memory
  std::uint64_t address = 0;  ///< address of the arena's first byte in its owner's process
  /// Offset of this rank's control block in the group that is being made.
  std::uint64_t subgroup = 0;
  AnnounceLine announce[2];
  /// Payloads of this rank's announcements, in turn. A slot is written again three payloads later.
  /// When this rank announces the payload before that, no other rank reads the slot any more: it
  /// asks for its lines then, see LinesToWrite.
  alignas(kLineBytes) std::byte payloads[kPayloadSlots][kInlineInNode];

  /// This rank's progress within a call: (sequence << kStepBits) + number of steps done. Only
  /// grows.
  alignas(kLineBytes) std::atomic<std::uint64_t> step{0};
  /// On the first rank of a group in a two-level wait: the steps that all ranks of that group have
  /// done.
  alignas(kLineBytes) std::atomic<std::uint64_t> group_step{0};

  /// 0, or once the rank has left for good: one more than the last sequence number that it took
  /// part in, combined with kLeftByException if an exception was the reason.
  alignas(kLineBytes) std::atomic<std::uint64_t> left{0};
  /// Number of ranks of the node that have left. Used only on the first rank.
  alignas(kLineBytes) std::atomic<std::uint32_t> leavers{0};
  /// Number of ranks of the node that will not access this block again.
  alignas(kLineBytes) std::atomic<std::uint32_t> departed{0};

  /// Number of ranks of the node that sleep until this one gives a signal, and the futex word that
  /// they sleep on.
  alignas(kLineBytes) std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> wakeups{0};
  /// Number of ranks of the node whose waits sleep at present. Used only on the first rank. While
  /// it is 0, a rank that gives a signal looks for no sleepers. Written seldom.
  alignas(kLineBytes) std::atomic<std::uint32_t> drowsy{0};

  /// See Inquiry. `asked` counts the questions of ranks of the node that wait for this one,
  /// `asked_in` is one more than the last call that they asked in, and `answers` counts this rank's
  /// answers that it waits itself.
  alignas(kLineBytes) std::atomic<std::uint64_t> asked{0};
  std::atomic<std::uint64_t> asked_in{0};
  std::atomic<std::uint64_t> answers{0};

  /// The node's failure, raised once and never cleared: kHealthy, or one more than the local rank
  /// whose block has the code and the text. Used only on the first rank. Code and text are written
  /// first, so that a rank which is killed while it raises a failure delays nobody.
  alignas(kLineBytes) std::atomic<std::uint32_t> failure{0};
  /// 1 once a thread of this rank has begun to write the code and text below.
  std::atomic<std::uint32_t> raises{0};
  std::uint32_t failure_code = 0;         ///< an ErrorCode
  std::uint32_t reports_its_failure = 0;  ///< 1 if all threads of this rank are its reporters
  char failure_text[kReportBytes] = {};

  /// Offset and length of this rank's ring of slots, see SlotRing. The offset is 0 until it is
  /// needed.
  alignas(kLineBytes) std::uint64_t ring = 0;
  std::uint64_t ring_bytes = 0;

  RecordBook calls;  ///< records of this rank's last calls

  char text[kTextBytes] = {};   ///< this rank's call in words, written after a disagreement
  std::uint32_t text_code = 0;  ///< the ErrorCode, if this rank refused its call
  /// On the first rank: the code that all ranks throw, or kOnlyChecksDiffer.
  std::uint32_t report_code = 0;
  char report_text[kReportBytes] = {};

  /// Offset of this rank's channels to the ranks of its node, see Messages; 0 before its first
  /// message.
  alignas(kLineBytes) std::atomic<std::uint64_t> channels{0};
  /// The message that this rank waits for: other rank << 32 | MessageState.
  std::atomic<std::uint64_t> message{0};
  /// Number of threads of this rank that are making a store or communicator.
  std::atomic<std::uint32_t> makes_group{0};
};

/// The control block of a group whose ranks are on several nodes, or whose calls may have
/// consumers. A group without both is made with a ControlBlock alone, which is a tenth of this.
struct WideControlBlock : ControlBlock {
  AgreementLine agreement[2];  ///< used only on the node's first rank
  /// Payloads that have no other place, used in turn like the lines of their announcements. A large
  /// call whose updates are shared stores the offsets of the updated arrays here.
  alignas(kLineBytes) std::byte wide_payloads[2][kInlineBytes];
  /// This rank's long waits in all groups of the arena. Used only in the block at its beginning.
  LongWaits long_waits;
};

/// The direction of the message that a rank is waiting for; read by ranks that look for its state.
enum class MessageState : std::uint32_t { none, sends, receives };

inline constexpr std::uint64_t kLeftByException = std::uint64_t{1} << 63;

inline constexpr std::uint32_t kHealthy = 0;
/// The value of report_code if only checks differ, see MismatchReport. It is no ErrorCode.
inline constexpr std::uint32_t kOnlyChecksDiffer = 0;

inline constexpr int kStepBits = 24;

/// One rank of the node, as it is mapped in this process.
struct Peer {
  std::byte* arena;     ///< first byte of its arena in this process
  ControlBlock* block;  ///< its control block for the group, in the arena
  [[nodiscard]] ControlBlock& control() const { return *block; }
  /// Requires that the group was made with such a block.
  [[nodiscard]] WideControlBlock& wide() const { return static_cast<WideControlBlock&>(*block); }

  /// Returns the offset of the block in the arena, which tells the arena's groups apart.
  [[nodiscard]] std::uint64_t offset_of_control() const {
    return static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(block) - arena);
  }
  /// Returns the rank's long waits in all groups of the arena, which begins with a
  /// WideControlBlock.
  [[nodiscard]] LongWaits& long_waits() const { return first_of(arena).wide().long_waits; }

  /// Returns a rank of the group that the arena was made for, whose block is at the arena's
  /// beginning.
  static Peer first_of(std::byte* arena) { return {arena, reinterpret_cast<ControlBlock*>(arena)}; }
};

/// The memory of a node: peers[i] is local rank i, this rank included.
struct NodeMemory {
  int local_rank = 0;
  std::vector<Peer> peers;
  std::size_t arena_bytes = 0;   ///< length of each arena
  PeerReader* reader = nullptr;  ///< null where ranks cannot read each other's ordinary memory
  Pace* pace = nullptr;          ///< set only in a simulation
  /// For new threads; null: inherited from their creator.
  std::shared_ptr<const ProcessorMask> processors{};

  [[nodiscard]] int size() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] const Peer& self() const { return peers[local_rank]; }
  [[nodiscard]] ControlBlock& control() const { return self().control(); }
  [[nodiscard]] ControlBlock& first() const { return peers[0].control(); }

  /// Returns the distance of an address from the first byte of this rank's arena. For memory in the
  /// arena it is an offset that is valid in every rank's mapping. For other memory it wraps around,
  /// and leads back to the address in this process only.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* address) const {
    return reinterpret_cast<std::uintptr_t>(address) -
           reinterpret_cast<std::uintptr_t>(self().arena);
  }
  /// True for memory in this rank's arena. If a call has failed, such memory stays valid until the
  /// process ends.
  [[nodiscard]] bool is_in_arena(const std::byte* address) const {
    return offset_of(address) < arena_bytes;
  }
  /// True for the offset of memory that every rank of the node has mapped. A rank that is alone on
  /// its node shares all its memory with itself.
  [[nodiscard]] bool is_mapped(std::uint64_t offset) const {
    return offset < arena_bytes || peers.size() == 1;
  }
};

}  // namespace tutti::collectives
