// SPDX-License-Identifier: Apache-2.0
// HandshakeSums: the nodes sum small data on the way, while their handshakes travel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "collectives/job/tree.hpp"
#include "collectives/lanes/folding.hpp"
#include "collectives/lanes/node_mail.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// True if adding several operands at once gives the same bits as single steps. It does not for
/// 16-bit floating-point types, where every step rounds.
bool sums_at_once(const FusedLayout& layout);

/// Sums with the handshakes, as the first rank of each node makes them for its node. Requires that
/// each node has one partial sum, and that the plan is the tree of nodes.
///
///   whole   as in folding.hpp: a message has the sum of a subtree of the canonical tree, so
///           the bits are those of the CombinePlan. Data with a single source is collected alike.
///
///   halves  as in exchange_halving.cpp: in round r, node i and node i xor 2^r swap the halves
///           of what they still sum, with their handshakes; on the way back they swap the totals
///
/// A handshake stands for all nodes that its sender has heard of, and tells whether they agree. By
/// halves, where N is a power of two, every node knows after log2 N rounds whether all agree, and
/// only then are totals sent back. So a sum of medium size takes no extra rounds for the agreement.
///
/// If a node has a single rank, its last sum goes directly into its outputs, see Agreed::operands.
///
/// Bytes  whole: n log2 N; halves: 2n (N - 1)/N.
/// Memory  per first rank: O(1) small data.
class HandshakeSums {
 public:
  HandshakeSums(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                Transport& transport, const Tuning& tuning);
  ~HandshakeSums();
  HandshakeSums(const HandshakeSums&) = delete;
  HandshakeSums& operator=(const HandshakeSums&) = delete;

  /// Exchanges the nodes' handshakes, with the data if `with_payload`.
  void fold(Call& call, bool with_payload, Agreed& agreed);
  /// Sums by halves. Requires Tuning::may_be_halved().
  void halve(Call& call, Agreed& agreed);

 private:
  struct Buffers;
  struct Halves;
  void exchange_folded(const FoldingRound& round, Agreed& agreed);
  void add(Call& call, const std::byte* message, NodeRange nodes, Agreed* last);
  void halve_once(Halves& halves, int round);
  void send_half(Halves& halves, int round);
  void sum_kept(Halves& halves, int rounds_done, Range range, std::byte* to);
  void double_known(Halves& halves);

  const Topology& topology_;
  const CombinePlan& plan_;
  const Folding folding_;
  const std::size_t most_bytes_;  ///< size of the largest message
  const std::shared_ptr<Buffers> buffers_;
  NodeMail mail_;
};

/// True if the last sum of a call can go directly into the outputs of a rank that is alone in its
/// node. It cannot for an average, which is divided afterwards, and for 16-bit floating-point
/// types, where every step rounds.
bool leaves_last_sum(const Call& call);

}  // namespace tutti::collectives
