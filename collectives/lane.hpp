// SPDX-License-Identifier: Apache-2.0
// One local rank's traffic with the same local rank of the other nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/transport.hpp"
#include "collectives/tree.hpp"

namespace tutti::collectives {

/// Message tags: one stream of messages per kind and pair of ranks, in order.
enum Tag : int { kGreetingTag = 1, kStatementTag = 2, kPartialTag = 3, kResultTag = 4 };

/// Allreduces shares of chunks over the nodes by direct exchange, several chunks in flight.
///
///   share of a chunk, cut into one piece per node (3 nodes; lane = local rank l of each):
///
///   node 0  [p0 p1 p2]   p1 --> node 1, p2 --> node 2      owner 0 sums p0 of all, in tree order
///   node 1  [p0 p1 p2]   p0 --> node 0, p2 --> node 2      owner 1 sums p1 of all
///   node 2  [p0 p1 p2]   p0 --> node 0, p1 --> node 1      owner 2 sums p2 of all
///                        then every owner sends its sum to the other nodes
///
/// Cost, of n bytes on N nodes: two rounds of N - 1 messages; 2 n (N-1)/N bytes sent and received,
/// which is the least possible. Any number of nodes, and canonical by itself: an owner has all
/// partial sums and adds them in the order of the CombinePlan. Wins up to some 16 nodes, beyond
/// which the number of messages tells.
/// Source  Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005: reduce-scatter by pairwise exchange.
///
/// Segments with a single source (broadcast, allgather) go from its node to the others in one
/// round.
class LaneExchange {
 public:
  LaneExchange(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
               Transport& transport, std::size_t chunks_in_flight);
  ~LaneExchange();
  LaneExchange(const LaneExchange&) = delete;
  LaneExchange& operator=(const LaneExchange&) = delete;

  /// Sums this lane's share of a chunk, staged in `slot`, over the node and starts its exchange.
  void start(Call& call, std::size_t chunk_index, Range chunk, int slot);
  /// Waits for a chunk started before; writes its result to every rank's output or result `slot`.
  void finish(Call& call, std::size_t chunk_index, int slot);
  /// Moves every started chunk on as far as messages allow.
  void poll(Call& call);

 private:
  struct Flight;
  void start_allreduce(Call& call, Flight& flight, const Sources& sources);
  void start_copies(Call& call, Flight& flight, const Sources& sources);
  void advance(Call& call, Flight& flight);
  void combine(Call& call, Flight& flight);
  [[nodiscard]] bool all_done(std::vector<Transport::Request>& requests);
  [[nodiscard]] std::vector<int> lane_ranks_elsewhere() const;

  const Topology& topology_;
  const CombinePlan& plan_;
  Waiter& waiter_;
  Transport& transport_;
  std::vector<std::vector<int>> partials_of_;  ///< of each node: indices into plan_.partials
  std::vector<std::unique_ptr<Flight>> flights_;
  std::size_t oldest_ = 0;  ///< chunks oldest_ .. next_ - 1 are started and not finished
  std::size_t next_ = 0;
};

}  // namespace tutti::collectives
