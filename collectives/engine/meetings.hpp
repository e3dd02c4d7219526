// SPDX-License-Identifier: Apache-2.0
// Meetings: of the ranks of a node that have begun messages, which ones exchange them now.
//
//     the higher rank of a pair                        the lower one
//     says that it is there, perhaps with news  ---->  looks at all that are there
//     returns from meet()                       <----  takes one, and returns
//
// There is one word for each pair of ranks, in the memory of the lower one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// A rank of the node with which another one would meet.
struct Partner {
  int rank = 0;
  bool has_news = false;  ///< the other one has something to tell it
};

/// What a rank, their owner, has in its arena for another rank of its node.
struct MeetingWords {
  /// Of an owner below the other rank: whether that one is in meet(), and whether the owner meets
  /// it.
  std::atomic<std::uint32_t> state{0};
  /// The next call of all ranks, while the owner waits with it for the other rank's messages.
  std::atomic<std::uint64_t> puts_off{0};
};

/// The meetings of one rank with the others of its node.
class Meetings {
 public:
  /// Returns the words of one local rank, their owner, for another one; null if the owner has none
  /// yet. One of the two is this rank.
  using Words = std::function<MeetingWords*(int owner, int to)>;

  Meetings(const NodeMemory& memory, const Topology& topology, Waiter& waiter, Words words);

  /// Waits until ranks among `partners`, which are in the node and in the order of ranks, meet this
  /// one, and returns them in the order in which to go to them. Each of them returns from its own
  /// meet() with this rank, and both then exchange messages. Two ranks meet if both are in this
  /// function and one of them has news. While one of them waits in meet(), it is nobody's: so any
  /// ranks may wait for any others. `sequence` is the number of this rank's last call of all ranks.
  /// If `awaited` is negative, this rank is about to make the next one: the result is empty once
  /// all partners have come to it. Errors: mismatch (failed), if the awaited rank waits in a later
  /// call of all ranks.
  [[nodiscard]] std::vector<int> meet(std::span<const Partner> partners, int awaited,
                                      std::uint64_t sequence);

 private:
  [[nodiscard]] std::atomic<std::uint32_t>* meeting_with(int rank) const;
  [[nodiscard]] const RecordBook& calls_of(int rank) const;
  [[nodiscard]] bool has_come(int rank, std::uint64_t sequence) const;
  [[nodiscard]] int agree_on_one(std::span<const Partner> partners);
  [[nodiscard]] std::vector<int> withdraw(std::span<const Partner> partners);
  void require_no_call(int awaited, std::uint64_t sequence);

  const NodeMemory& memory_;
  const Topology& topology_;
  Waiter& waiter_;
  Words words_;
  /// Since when the awaited rank has been in a call that needs this one.
  std::optional<std::chrono::steady_clock::time_point> in_a_call_since_;
};

}  // namespace tutti::collectives
