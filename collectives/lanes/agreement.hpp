// SPDX-License-Identifier: Apache-2.0
// The nodes agree on a call before data moves; small data comes along.
#pragma once

#include <cstddef>
#include <memory>

#include "collectives/job/tree.hpp"
#include "collectives/lanes/handshake_sums.hpp"
#include "collectives/lanes/node_mail.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// What the first rank of each node does for its node.
///
///   direct     node 0: [handshake | partial sums]  <-->  node 1, node 2, ...   to each, at once
///
///   doubling   where sums can be made on the way, see HandshakeSums; otherwise
///              round 0: node i sends its handshake to node i + 1
///              round 1: what it and i - 1 have to node i + 2
///              round 2: what it, i - 1, i - 2 and i - 3 have to node i + 4; and so on
///
/// A handshake carries the node's signature, or that its own ranks disagree. Every first rank sees
/// all handshakes, or one that stands for all. So all come to the same result. Small data travels
/// with the handshake: a small allreduce is one round, or ceil(log2 N) rounds of one message each
/// among many nodes. A node with several partial sums, or nodes in another tree, pass on all that
/// there is.
///
/// Bytes  direct n (N - 1) received per node; doubling n N where nothing is summed on the way.
/// Memory  per first rank: O(N), unless sums are made on the way.
/// Source  Bruck et al., IEEE TPDS 8(11), 1997: the allgather in log2 N rounds.
class Agreement {
 public:
  Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter, Transport& transport,
            const Tuning& tuning);
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// The outcome that all nodes agreed on, with the sum if the call's route is that data comes
  /// along. Valid until the next call.
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
  std::size_t most_bytes_ = 0;  ///< that a handshake has with its data
  const std::shared_ptr<Buffers> buffers_;
  NodeMail mail_;
  std::unique_ptr<HandshakeSums> sums_;  ///< null: sums are not made on the way
  Agreed agreed_;
};

}  // namespace tutti::collectives
