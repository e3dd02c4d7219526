// SPDX-License-Identifier: Apache-2.0
// The nodes agree on a call before data moves; small data comes along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/lane.hpp"
#include "collectives/mismatch.hpp"
#include "collectives/transport.hpp"
#include "collectives/tree.hpp"

namespace tutti::collectives {

/// What the first rank of each node does for its node.
///
///   direct     node 0: [handshake | partial sums]  <-->  node 1, node 2, ...   to each, at once
///
///   doubling   round 0: node i sends its handshake to node i + 1
///              round 1: those of i, i - 1 to node i + 2
///              round 2: those of i, i - 1, i - 2, i - 3 to node i + 4; and so on
///
/// A handshake carries the node's signature, or that its own ranks disagree; every first rank sees
/// all handshakes, so all come to the same result. Small data travels with the handshake: a small
/// allreduce is one round, or ceil(log2 N) rounds of one message each among many nodes. Whatever
/// their number, everybody has all partial sums and adds them in the order of the CombinePlan.
/// Source  Bruck et al., IEEE TPDS 8(11), 1997: the allgather in log2 N rounds.
class Agreement {
 public:
  Agreement(const Topology& topology, const CombinePlan& plan, Waiter& waiter, Transport& transport,
            Handshakes handshakes);
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// True if all nodes agree. If `with_payload`, result() then holds the reduced wire elements.
  bool reach(Call& call, bool with_payload);
  [[nodiscard]] const std::byte* result() const { return result_; }
  /// True if a rank of any node announced the call with a request to stop.
  [[nodiscard]] bool stop_requested() const;
  /// The rank that announced the call last, as far as this node saw: see Handshake.
  [[nodiscard]] int last_rank() const { return last_rank_; }

  /// Every node's statements, in the order of ranks.
  std::vector<RankStatement> exchange(const std::vector<RankStatement>& of_this_node);

 private:
  struct Handshake;
  struct Buffers;
  void compose_handshake(Call& call, bool with_payload);
  [[nodiscard]] bool handshakes_agree(const Call& call) const;
  void pass_on_handshakes();
  std::size_t handshake_length(int node, std::span<const std::byte> bytes) const;
  void combine(const Call& call);
  void pick_copies(const Call& call);
  void send_to_all(int tag, std::span<const std::byte> message);
  void receive_from_all(int tag, std::size_t room);
  void wait_for_messages();
  bool wait_for_handshakes();
  void learn_last_rank();
  void tell_last_rank();

  const Topology& topology_;
  const CombinePlan& plan_;
  Waiter& waiter_;
  Transport& transport_;
  Handshakes handshakes_;
  std::vector<std::vector<int>> partials_of_;
  std::size_t most_bytes_ = 0;  ///< a handshake has
  std::unique_ptr<Buffers> buffers_;
  const std::byte* result_ = nullptr;
  int last_node_ = -1;  ///< whose message was missing last
  int last_rank_ = 0;
};

}  // namespace tutti::collectives
