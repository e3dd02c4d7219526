// SPDX-License-Identifier: Apache-2.0
// Agreement: the nodes agree on a call before its data moves; small data travels along.
#pragma once

#include <cstddef>
#include <memory>

#include "collectives/job/tree.hpp"
#include "collectives/lanes/handshake_sums.hpp"
#include "collectives/lanes/node_mail.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// The agreement of the nodes, as the first rank of each makes it for its node.
///
///   direct     node 0: [handshake | partial sums]  <-->  node 1, node 2, ...   to each, at once
///
///   doubling   where sums can be made on the way, see HandshakeSums; otherwise
///              round 0: node i sends its handshake to node i + 1
///              round 1: its own and that of i - 1, to node i + 2
///              round 2: its own and those of i - 1, i - 2 and i - 3, to node i + 4; and so on
///
/// A handshake has the node's signature, or says that its own ranks disagree. Every first rank sees
/// all handshakes, or one that stands for all of them, so all come to the same result. Small data
/// travels in the handshake: a small allreduce takes one round, or among many nodes ceil(log2 N)
/// rounds of one message each. If a node has several partial sums, or the plan is not the tree of
/// nodes, the partial sums are passed on separately.
///
/// Bytes  direct: n (N - 1) received per node; doubling: n N unless sums are made on the way.
/// Memory  per first rank: O(N), unless sums are made on the way.
/// Source  Bruck et al., IEEE TPDS 8(11), 1997: the allgather in log2 N rounds.
class Agreement {
 public:
  Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter, Transport& transport,
            const Tuning& tuning);
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// Returns the result of the agreement of all nodes, with the sum if the route says that data
  /// travels along. Valid until the next call.
  const Agreed& reach(Call& call);
  [[nodiscard]] const Agreed& last() const { return agreed_; }

 private:
  struct Buffers;
  void compose_handshake(Call& call, bool with_payload);
  void swap_handshakes(Call& call, bool with_payload);
  void pass_on_handshakes(Call& call, bool with_payload);
  void learn_last_rank();
  void look_at_all(const Call& call);
  void combine(Call& call);
  void sum_all(Call& call);
  void pick_copies(const Call& call);

  const Topology& topology_;
  const CombinePlan& plan_;
  const Handshakes handshakes_;
  std::size_t most_bytes_ = 0;  ///< size of the largest handshake with its data
  const std::shared_ptr<Buffers> buffers_;
  NodeMail mail_;
  std::unique_ptr<HandshakeSums> sums_;  ///< null if sums are not made on the way
  Agreed agreed_;
};

}  // namespace tutti::collectives
