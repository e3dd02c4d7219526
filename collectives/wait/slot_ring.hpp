// SPDX-License-Identifier: Apache-2.0
// SlotRing: a ring of scratch slots in a rank's arena, for data that others read or write.
//
//   ring of rank 0   |  chunk 7  |  chunk 8  |...free...|  chunk 5  |  chunk 6  | . |
//   ring of rank 1   |  chunk 7  |  chunk 8  |...free...|  chunk 5  |  chunk 6  | . |
//                                            ^ next, on every rank
//
// A line that another core has just read lies in that core's own cache, and a write has to fetch it
// from there. So each call takes the next slots of a ring that is larger than such a cache: by the
// time a line is written again, it has moved to the cache that all cores share.
//
// Two ranks can do without that: behind these rings they have a pair of small ones, which they swap
// each time that they are full. A rank then writes the lines that it has read last:
//
//   behind the ring of rank 0   | written by 0, read by 1 |    then    | written by 1, read by 0 |
//   behind the ring of rank 1   | written by 1, read by 0 |    then    | written by 0, read by 1 |
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// The position in the rings of a node: every rank has one in its arena. All ranks take slots of
/// the same sizes in the same order, in calls that they have agreed on, so that a slot is at the
/// same offset in every ring. A call that fails may break this, but no other call follows it.
///
/// Slots are not given back. A slot is written again when the ring has wrapped around, and until
/// then all ranks must have finished with it:
/// - A call begins when all ranks have announced it, so all have finished with the slots of earlier
///   calls.
/// - In a call that takes up to two slots for a chunk and in which all ranks wait for each other in
///   every chunk, a rank that writes chunk k + 2 has seen the signals of chunk k + 1, which follow
///   every rank's last use of chunk k. So only the last kLive slots are in use.
/// - A call that stages ahead does not exceed most_ahead().
///
/// Bytes of a swapped ring have a writer and a reader, who change places when the ring is full. So
/// the rank that writes them now has read them the last time, and the other rank has read them two
/// laps ago. A rank that stages w chunks ahead of those that it has taken, or that the other has,
/// needs a ring of w + 3 slots. A slot that is written early follows those of the previous call in
/// the same ring, or is at the beginning of the other ring. Where only one rank gives, in a call or
/// a part of it, the other one later writes lines that it has not read; that is only slower.
class SlotRing {
 public:
  /// Number of slots, of any size, that may be in use at a time.
  static constexpr std::size_t kLive = 4;
  /// Number of bytes whose pages are made and mapped before the first use: the longest ring that is
  /// chosen for the caches. Slots of many nodes' pieces need rings of up to 48 MiB, of which most
  /// programs use little.
  static constexpr std::size_t kMostPrepared = std::size_t{4} << 20;
  /// Returns the smallest size of a ring for slots of up to `slot` bytes. Space behind the last
  /// slot is not used.
  static constexpr std::size_t least_bytes(std::size_t slot) {
    return (kLive + 2) * in_lines(slot);
  }

  /// Length of a swapped ring in bytes, which leaves a core's own cache room for inputs and
  /// outputs, and the size of its largest slot.
  static constexpr std::size_t kSwapped = std::size_t{256} << 10;
  static constexpr std::size_t kMostSwapped = kSwapped / 8;
  /// Returns the pair of rings behind these, whose length is agreed on. Maps their pages.
  static SlotRing swapped_behind(const SlotRing& ring, const NodeMemory& memory);

  void set_length(std::size_t bytes) { bytes_ = bytes; }
  /// Sets the smallest length that any rank of the node has chosen. Ranks choose a length by the
  /// caches of the cores that they run on, which may differ. Also maps the first kMostPrepared
  /// bytes of all rings, so that the first calls take as long as later ones: the learner compares
  /// paths by their first calls. Call it once all ranks of the node have made their rings.
  void agree_on_length(const NodeMemory& memory);
  [[nodiscard]] std::size_t length() const { return bytes_; }

  /// True if a rank may write the next slot, of `bytes` bytes, before all ranks have announced the
  /// call. Other ranks may still read slots of the previous call, which take up to seven eighths of
  /// the ring, and the end of the ring may be too short for this slot.
  [[nodiscard]] bool may_be_early(std::size_t bytes) const {
    return in_lines(bytes) <= (is_swapped_ ? kMostSwapped : bytes_ / 16);
  }
  /// Takes the next slot, of `bytes` bytes.
  std::size_t take(std::size_t bytes) {
    if (next_ + in_lines(bytes) > bytes_) {
      next_ = 0;
      if (is_swapped_) side_ ^= kOfOther;
    }
    const std::size_t slot = (first_ + next_) | side_;
    next_ += in_lines(bytes);
    return slot;
  }
  /// Returns the distance of a slot from the first byte of the ring in front.
  static constexpr std::size_t offset_of(std::size_t slot) { return slot & ~kOfOther; }
  /// True if a rank's slot lies in the ring of the other one.
  static constexpr bool is_of_other(std::size_t slot) { return (slot & kOfOther) != 0; }
  /// Returns the number of bytes from a slot to the end of its ring.
  [[nodiscard]] std::size_t length_from(std::size_t slot) const {
    return first_ + bytes_ - offset_of(slot);
  }

  /// Returns how many chunks a rank may have staged beyond those that it has summed, when it stages
  /// another, in slots of `slot` bytes. At least 1.
  ///
  /// With w of them, a rank that stages chunk k has summed chunk k - w - 1. So it has seen every
  /// rank's signal that this chunk was staged, and before that signal these ranks had summed chunk
  /// k - 2w - 2. So 2w + 2 slots may be in use. An eighth of the
  /// ring is left free, see may_be_early().
  [[nodiscard]] std::size_t most_ahead(std::size_t slot) const {
    if (is_swapped_) return bytes_ / in_lines(slot) - 3;
    const std::size_t slots = (bytes_ - bytes_ / 8) / in_lines(slot);
    return (std::max(slots, kLive + 1) - 3) / 2;
  }

 private:
  static constexpr std::size_t in_lines(std::size_t bytes) {
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

  static constexpr std::size_t kOfOther = ~(~std::size_t{0} >> 1);  ///< the highest bit

  std::size_t bytes_ = 0;
  std::size_t next_ = 0;
  std::size_t first_ = 0;  ///< offset of the ring's first byte
  std::size_t side_ = 0;   ///< kOfOther while each rank writes the other's ring
  bool is_swapped_ = false;
};

}  // namespace tutti::collectives
