// SPDX-License-Identifier: Apache-2.0
// The nodes agree on a call before data moves; small data comes along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/job/tree.hpp"
#include "collectives/lanes/folding.hpp"
#include "collectives/lanes/lane.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/mismatch.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// What the first rank of each node does for its node.
///
///   direct     node 0: [handshake | partial sums]  <-->  node 1, node 2, ...   to each, at once
///
///   doubling   folding.hpp has the picture, where sums can be made on the way; otherwise
///              round 0: node i sends its handshake to node i + 1
///              round 1: what it and i - 1 have to node i + 2
///              round 2: what it, i - 1, i - 2 and i - 3 have to node i + 4; and so on
///
/// A handshake carries the node's signature, or that its own ranks disagree. Every first rank sees
/// all handshakes, or one that stands for all: it says whether those that it stands for are alike.
/// So all come to the same result. Small data travels with the handshake: a small allreduce is one
/// round, or ceil(log2 N) rounds of one message each among many nodes.
///
/// By doubling, sums are made on the way: a message has the sum of a subtree of the canonical tree,
/// so the bits are those of the CombinePlan. Data with one source is put together in the same way.
/// A node with several partial sums, or nodes in another tree, pass on all that there is instead.
///
///   halves     as exchange_halving.cpp has it: round r: node i and node i xor 2^r swap the halves
///   of
///              what they still sum, with their handshakes; and back, what they have summed
///
/// By halves, where N is a power of two, every node knows after log2 N rounds whether all agree,
/// and only then are sums sent back. So a sum of middle size takes no rounds for the agreement.
///
/// Where a node is one rank, the last sum goes straight into its outputs: see last_operands().
///
/// Bytes  direct n (N - 1) received per node; doubling n log2 N, or n N where nothing is summed;
///        halves 2n (N - 1)/N.
/// Memory  per first rank, doubling: O(1) small data where sums are made on the way; else O(N).
/// Source  Bruck et al., IEEE TPDS 8(11), 1997: the allgather in log2 N rounds.
class Agreement {
 public:
  Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter, Transport& transport,
            const Tuning& tuning);
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// What goes with the handshakes. Halves: only if Tuning::may_be_halved().
  enum class Payload { none, whole, halves };

  /// True if all nodes agree. With a payload, result() then holds the reduced wire elements.
  bool reach(Call& call, Payload payload);
  [[nodiscard]] const std::byte* result() const { return result_; }
  /// Where all but the last sum has been made: what is to be summed, each wire elements of the
  /// whole call, in the order of nodes. Empty if result() has the sum.
  [[nodiscard]] std::span<const std::byte* const> last_operands() const { return operands_; }
  /// True if this rank's outputs have the sum already.
  [[nodiscard]] bool has_delivered() const { return has_delivered_; }
  /// True if a rank of any node announced the call with a request to stop.
  [[nodiscard]] bool stop_requested() const { return stop_requested_; }
  /// The rank that announced the call last, as far as this node saw: see Handshake.
  [[nodiscard]] int last_rank() const { return last_rank_; }

  /// How long the call before this one took, from the nodes' Announcement::longest_time(): equal on
  /// all.
  [[nodiscard]] std::uint32_t last_time() const { return last_time_; }

  /// Every node's statements, in the order of ranks.
  std::vector<RankStatement> exchange(const std::vector<RankStatement>& of_this_node);

 private:
  struct Handshake;
  struct Buffers;
  struct Halves;
  [[nodiscard]] Handshake handshake_of(const Call& call, std::size_t bytes) const;
  bool fold(Call& call, bool with_payload);
  void exchange_folded(const FoldingRound& round);
  static void merge(Handshake& own, const std::byte* message);
  void add(Call& call, const std::byte* message, NodeRange nodes, bool is_last);
  [[nodiscard]] bool leaves_last_sum(const Call& call) const;
  bool halve(Call& call);
  void halve_once(Halves& halves, int round);
  void send_half(Halves& halves, int round);
  void sum_kept(Halves& halves, int rounds_done, Range range, std::byte* to);
  void double_known(Halves& halves);
  void compose_handshake(Call& call, bool with_payload);
  [[nodiscard]] bool handshakes_agree(const Call& call) const;
  void look_at_all();
  void pass_on_handshakes();
  std::size_t handshake_length(int node, std::span<const std::byte> bytes) const;
  void combine(Call& call);
  void sum_all(Call& call);
  void pick_copies(const Call& call);
  void send(int to_node, int tag, std::span<const std::byte> message);
  void receive(int node, int tag, std::span<std::byte> bytes);
  void send_handshake(int to_node, std::span<const std::byte> whole);
  void receive_handshake(int from_node, std::span<std::byte> room);
  void receive_rest(int from_node, std::span<std::byte> whole);
  std::span<std::byte> room_for(int node);
  void for_each_other(FunctionRef<void(int)> visit) const;
  static std::size_t folded_length(std::span<const std::byte> bytes);
  void write_folded(const Handshake& own, std::byte* message) const;
  /// For all of them, or for those that one node sends.
  void wait_for_messages(int from_node = -1);
  bool wait_for_handshakes();
  void learn_last_rank();
  void learn_last_rank(const std::byte* message);
  void tell_last_rank();

  const Topology& topology_;
  const CombinePlan& plan_;
  Waiter& waiter_;
  Transport& transport_;
  Handshakes handshakes_;
  const bool folds_;  ///< sums are made on the way
  const Folding folding_;
  std::size_t most_bytes_ = 0;  ///< a handshake, or a message of folded ones, has
  std::unique_ptr<Buffers> buffers_;
  const std::byte* result_ = nullptr;
  std::vector<const std::byte*> operands_;
  int last_node_ = -1;  ///< whose message was missing last
  int last_rank_ = 0;
  bool has_delivered_ = false;
  bool stop_requested_ = false;
  std::uint32_t last_time_ = 0;
};

}  // namespace tutti::collectives
