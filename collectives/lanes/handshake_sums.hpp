// SPDX-License-Identifier: Apache-2.0
// Sums that the nodes make on the way, while their handshakes travel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "collectives/job/tree.hpp"
#include "collectives/lanes/folding.hpp"
#include "collectives/lanes/node_mail.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Several steps at once give the bits of one after the other, but for 16-bit floating-point types,
/// of which every step rounds.
bool sums_at_once(const FusedLayout& layout);

/// The work of the first rank of each node for its node where a node has one partial sum, in the
/// tree of nodes.
///
///   whole   folding.hpp has the picture: a message has the sum of a subtree of the canonical tree,
///           so the bits are those of the CombinePlan. Data with one source is put together in the
///           same way.
///
///   halves  as exchange_halving.cpp has it: round r: node i and node i xor 2^r swap the halves of
///           what they still sum, with their handshakes; and back, what they have summed
///
/// A handshake stands for all nodes that its sender knows of, and says whether they are alike. By
/// halves, where N is a power of two, every node knows after log2 N rounds whether all agree, and
/// only then are sums sent back. So a sum of middle size takes no rounds for the agreement.
///
/// Where a node is one rank, the last sum goes straight into its outputs: see Agreed::operands.
///
/// Bytes  whole n log2 N; halves 2n (N - 1)/N.
/// Memory  per first rank: O(1) small data.
class HandshakeSums {
 public:
  HandshakeSums(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                Transport& transport, const Tuning& tuning);
  ~HandshakeSums();
  HandshakeSums(const HandshakeSums&) = delete;
  HandshakeSums& operator=(const HandshakeSums&) = delete;

  /// The nodes' handshakes, with the data or without.
  void fold(Call& call, bool with_payload, Agreed& agreed);
  /// Sums by halves: only if Tuning::may_be_halved().
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
  const std::size_t most_bytes_;  ///< that a message has
  const std::shared_ptr<Buffers> buffers_;
  NodeMail mail_;
};

/// True if the last sum of a call can be made into the outputs of a rank that is alone in its node.
/// An average is divided afterwards, and every step of 16-bit floating-point types rounds.
bool leaves_last_sum(const Call& call);

}  // namespace tutti::collectives
