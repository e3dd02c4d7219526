// SPDX-License-Identifier: Apache-2.0
// What the ranks of a node give to each other in a call in which every element has one source.
//
//   layout        | 0 to 0 | 0 to 1 | 0 to 2 | 1 to 0 | 1 to 1 | 1 to 2 | 2 to 0 | 2 to 1 | 2 to 2
//   | stream of 1                              |  then  |  kept  | first  |
//
// Each rank's stream goes through its own ring, all streams at once. What a rank keeps for itself
// is no part of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/job/fused_layout.hpp"
#include "collectives/job/topology.hpp"

namespace tutti::collectives {

class BlockStreams {
 public:
  explicit BlockStreams(std::size_t ranks_of_node) : streams_(ranks_of_node) {}

  /// Those of a call. False, and then there are none, if the blocks of a rank do not lie side by
  /// side in the layout.
  bool assign(const FusedLayout& layout, const Topology& topology) noexcept;

  /// The bytes of the longest stream.
  [[nodiscard]] std::size_t longest() const { return longest_; }
  /// True if this rank wants something of another rank's stream.
  [[nodiscard]] bool is_taker() const { return is_taker_; }
  /// Positions of what a local rank has itself from its own input: all that it is the source of, if
  /// that goes to everyone.
  [[nodiscard]] Range kept(int peer) const { return streams_[static_cast<std::size_t>(peer)].kept; }

  /// Calls visit(positions, offset) for what a local rank's stream has from `part.begin` to
  /// `part.end`, and how far behind its beginning that is.
  template <class Visit>
  void for_each_piece(int peer, Range part, Visit&& visit) const {
    const Stream& stream = streams_[static_cast<std::size_t>(peer)];
    std::size_t place = 0;
    for (const Range& given : stream.given) {
      const std::size_t from = std::max(part.begin, place);
      const std::size_t to = std::min(part.end, place + given.size());
      if (from < to) {
        visit(Range{given.begin + (from - place), given.begin + (to - place)}, from - part.begin);
      }
      place += given.size();
    }
  }

 private:
  struct Stream {
    /// The stream's two stretches in their order; all of its rank's blocks before
    /// begin_behind_kept().
    Range given[2];
    Range kept;
    bool keeps_one = false;  ///< block, which goes to nobody else

    /// The next block of the rank. False if there is another rank's in between.
    bool add(Range block, bool is_kept);
    void begin_behind_kept();
  };

  std::vector<Stream> streams_;  ///< of each local rank
  std::size_t longest_ = 0;
  bool is_taker_ = false;
};

}  // namespace tutti::collectives
