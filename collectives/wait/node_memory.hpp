// SPDX-License-Identifier: Apache-2.0
// The first seam: what a rank sees of the other ranks of its node.
//
// Every rank has one arena. Its first bytes are a ControlBlock; the rest holds replicas, push
// buffers and scratch. All ranks of the node have all arenas mapped, each at an address of its own,
// so what crosses between ranks is an offset, never a pointer. A group of some of the ranks uses
// the same arenas, with a ControlBlock of each member's for itself.
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
#include "collectives/wait/peer_reader.hpp"
#include "collectives/wait/record.hpp"

namespace tutti::collectives {

/// What may be one line of a cache, or is prefetched together, must not be written by two ranks:
/// two lines of 64 bytes on x86-64; on Arm lines of 64 (most), 128 (Apple) or 256 (A64FX).
#if defined(__aarch64__)
inline constexpr std::size_t kLineBytes = 256;
#else
inline constexpr std::size_t kLineBytes = 128;
#endif
/// Room for data that travels inside the announcement itself. In one node no call needs more than
/// the first part: beyond that, other paths are faster. Memory that no call uses is never touched.
inline constexpr std::size_t kInlineBytes = 131072;
inline constexpr std::size_t kInlineInNode = 8192;
/// Room for one rank's words about its own call, and for the report of how all calls differ.
inline constexpr std::size_t kTextBytes = 1024;
inline constexpr std::size_t kReportBytes = 8192;
/// In place of an offset: there is no such buffer.
inline constexpr std::uint64_t kNoBuffer = ~std::uint64_t{0};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// What all ranks of one collective call must agree on.
struct Signature {
  std::uint64_t keys = 0;   ///< digest of keys, shapes, dtypes, updater and root, in order
  std::uint64_t bytes = 0;  ///< size of the data on one rank
  std::uint64_t what = 0;   ///< kind, operation, and in the upper half the check of an operation

  static constexpr int kCheckShift = 32;
  [[nodiscard]] Signature without_check() const {
    return {keys, bytes, what & ((std::uint64_t{1} << kCheckShift) - 1)};
  }
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// Where one segment of a call lies: distances from the first byte of the rank's arena, see
/// NodeMemory::offset_of(). A second output may be missing (kNoBuffer).
struct SharedSegment {
  std::uint64_t input;
  std::uint64_t output;
  std::uint64_t second_output;
  friend bool operator==(const SharedSegment&, const SharedSegment&) = default;
};

/// Room for data in the first cache line of an announcement.
inline constexpr std::size_t kTinyBytes = sizeof(SharedSegment);

/// Where the segments of a call lie: one here, several in a table in the arena. A tiny call, whose
/// only segment fits, has no need of that, and has its data here.
union SegmentDirectory {
  std::uint64_t table;  ///< offset of SharedSegment[number of segments], if more than one
  SharedSegment only;   ///< the segment, if there is one
  std::byte tiny_payload[kTinyBytes];
};

/// One rank's "I am here, and this is my call". Written by its rank, read by all others.
///
/// There are two, used in turn by sequence number. A rank that writes the line of call k + 2 has
/// completed k + 1, so every rank has announced k + 1, so every rank has read the lines of call k:
/// a line is never overwritten while somebody reads it. Readers compare for equality, because a
/// fast rank may already have announced k + 1 (in the other line).
///
/// The first 64 bytes are all that a tiny call moves, or one without a payload. A larger payload
/// starts a cache line. In its place, a large call whose updates are shared has the offsets of what
/// they write.
struct alignas(kLineBytes) AnnounceLine {
  std::atomic<std::uint64_t> sequence{0};
  Signature signature;
  std::uint32_t last_end = 0;       ///< CallTime of this rank's last call
  std::uint16_t last_duration = 0;  ///< the same
  std::uint16_t flags = 0;          ///< AnnounceFlags
  SegmentDirectory directory = {};  ///< where a call larger than a payload lies; a tiny payload
  alignas(64) std::byte payload[kInlineBytes];
};
static_assert(offsetof(AnnounceLine, directory) + sizeof(SegmentDirectory) <= 64);
static_assert(offsetof(AnnounceLine, payload) == 64);

enum AnnounceFlags : std::uint16_t {
  kRefused = 1,          ///< this rank's call is invalid; its text says why
  kInputsShared = 2,     ///< all inputs lie in the arena
  kInputsPrivate = 4,    ///< no input lies in the arena
  kPayload = 16,         ///< the inputs are in the line
  kOutputsInPlace = 8,   ///< all outputs lie in the arena and peers may write them
  kStopRequested = 32,   ///< this rank has been asked to stop
  kInputsApart = 64,     ///< no output of a segment is its input
  kConsumed = 128,       ///< the results go to a consumer
  kSharesUpdates = 256,  ///< and peers may update for it; the places to write are in the line
};

/// What the first rank of a node passes on from other nodes: their agreement, whether a rank of any
/// was asked to stop, who came last, how long the call before it took on all nodes and, for small
/// payloads, the result. Two lines in turn, like
/// AnnounceLine.
struct alignas(kLineBytes) AgreementLine {
  std::atomic<std::uint64_t> sequence{0};
  std::uint32_t agreed = 0;
  std::uint32_t stop_requested = 0;
  std::int32_t last_rank = 0;
  std::uint32_t last_time = 0;  ///< as LongestTime has it; the payload begins behind it
  std::byte payload[kInlineBytes];
};

/// The first bytes of an arena, and of what a later group has there. Members that different ranks
/// write in each call lie on different lines.
struct ControlBlock {
  std::uint64_t nonce = 0;     ///< what peers read to know that they have mapped the right memory
  std::uint64_t address = 0;   ///< of the arena's first byte, in its owner's process
  std::uint64_t subgroup = 0;  ///< offset of this rank's block in the group that is being made
  AnnounceLine announce[2];
  AgreementLine agreement[2];  ///< used of the node's first rank

  /// Progress within a call: (sequence << kStepBits) + number of steps done. Only grows.
  alignas(kLineBytes) std::atomic<std::uint64_t> step{0};
  /// On the first rank of a group of a two-level wait: the steps that all of the group have done.
  alignas(kLineBytes) std::atomic<std::uint64_t> group_step{0};

  /// The last sequence number that the rank took part in, plus one, once it has left for good;
  /// with kLeftByException.
  alignas(kLineBytes) std::atomic<std::uint64_t> left{0};
  /// Ranks of the node that have left (of the first rank).
  alignas(kLineBytes) std::atomic<std::uint32_t> leavers{0};
  /// Ranks of the node that will not look at this block again.
  alignas(kLineBytes) std::atomic<std::uint32_t> departed{0};

  /// Ranks of the node that sleep until this one gives a signal, and the word that they sleep on.
  alignas(kLineBytes) std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> wakeups{0};
  /// Ranks of the node whose waits sleep at present (of the first rank): while there are none,
  /// nobody who gives a signal looks further. Written seldom.
  alignas(kLineBytes) std::atomic<std::uint32_t> drowsy{0};

  /// How often ranks of the node that wait for this one have asked whether it waits, too; the last
  /// call of theirs, plus one; and how often it has said that it does. See Inquiry.
  alignas(kLineBytes) std::atomic<std::uint64_t> asked{0};
  std::atomic<std::uint64_t> asked_in{0};
  std::atomic<std::uint64_t> answers{0};

  /// The node's failure, raised once and never lowered (of the first rank): kHealthy, or one more
  /// than the local rank whose block has the code and the text. They are there first, so that a
  /// rank which is killed while it raises a failure holds up nobody.
  alignas(kLineBytes) std::atomic<std::uint32_t> failure{0};
  std::atomic<std::uint32_t> raises{0};  ///< 1: a thread of this rank writes what follows
  std::uint32_t failure_code = 0;        ///< an ErrorCode
  char failure_text[kReportBytes] = {};

  /// This rank's ring of slots, see SlotRing: its offset, 0 before it is needed, and its length.
  alignas(kLineBytes) std::uint64_t ring = 0;
  std::uint64_t ring_bytes = 0;

  RecordBook calls;  ///< this rank's last ones

  char text[kTextBytes] = {};     ///< this rank's call in words, after a disagreement
  std::uint32_t text_code = 0;    ///< its ErrorCode if it was refused
  std::uint32_t report_code = 0;  ///< on the first rank: what all ranks throw, or kOnlyChecksDiffer
  char report_text[kReportBytes] = {};

  /// The offset of this rank's channels to its node, see Messages; 0 before its first message.
  alignas(kLineBytes) std::atomic<std::uint64_t> channels{0};
  /// The message that this rank waits in: the other rank << 32 | MessageState.
  std::atomic<std::uint64_t> message{0};
};

/// What a rank does in a message of two ranks, for those who ask why it does not come.
enum class MessageState : std::uint32_t { none, sends, receives };

inline constexpr std::uint64_t kLeftByException = std::uint64_t{1} << 63;

inline constexpr std::uint32_t kHealthy = 0;
/// A report_code that is no ErrorCode: see MismatchReport.
inline constexpr std::uint32_t kOnlyChecksDiffer = 0;

inline constexpr int kStepBits = 24;

/// One rank of the node, as this process sees it.
struct Peer {
  std::byte* arena;     ///< its arena's first byte, here
  ControlBlock* block;  ///< the group's, in the arena
  [[nodiscard]] ControlBlock& control() const { return *block; }

  /// A rank of the group that the arena was made for.
  static Peer first_of(std::byte* arena) { return {arena, reinterpret_cast<ControlBlock*>(arena)}; }
};

/// The node: peers[i] is local rank i, this rank included.
struct NodeMemory {
  int local_rank = 0;
  std::vector<Peer> peers;
  std::size_t arena_bytes = 0;   ///< length of every mapping
  PeerReader* reader = nullptr;  ///< null where ranks cannot read each other's other memory
  Pace* pace = nullptr;          ///< null but in a simulation
  std::shared_ptr<const ProcessorMask> processors{};  ///< for threads; null: those of their maker

  [[nodiscard]] int size() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] const Peer& self() const { return peers[local_rank]; }
  [[nodiscard]] ControlBlock& control() const { return self().control(); }
  [[nodiscard]] ControlBlock& first() const { return peers[0].control(); }

  /// The distance of memory from the first byte of this rank's arena. In the arena it is an offset
  /// into every rank's mapping. Elsewhere it wraps around, and leads back to the address in this
  /// process alone.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* address) const {
    return reinterpret_cast<std::uintptr_t>(address) -
           reinterpret_cast<std::uintptr_t>(self().arena);
  }
  /// True for memory in this rank's arena, which stays where it is until the process ends if a call
  /// has failed.
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
