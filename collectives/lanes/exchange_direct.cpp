// SPDX-License-Identifier: Apache-2.0
// Direct exchange: every node owns a piece, and sums it.
//
//   share of a chunk, cut into one piece per node (3 nodes):
//
//   node 0  [p0 p1 p2]   p1 --> node 1, p2 --> node 2      owner 0 sums p0 of all, in tree order
//   node 1  [p0 p1 p2]   p0 --> node 0, p2 --> node 2      owner 1 sums p1 of all
//   node 2  [p0 p1 p2]   p0 --> node 0, p1 --> node 1      owner 2 sums p2 of all
//                        then every owner sends its sum to the nodes that need it
//
// If a rank is alone in its node, pieces in its arena are sent from there. They are also received
// there, unless the input lies in the same place and may still be being sent.
//
// Cost, for n bytes on N nodes: two rounds of N - 1 messages; 2 n (N-1)/N bytes sent and received,
// which is the minimum. A reduce sends the sums only to the root's node. Works for any number of
// nodes, with canonical sums: an owner has all partial sums and adds them in the order of the
// CombinePlan. It is the fastest up to about 16 nodes; beyond that, the number of messages
// dominates.
// Source  Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005: reduce-scatter by pairwise exchange.
#include <algorithm>

#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

class DirectExchange final : public ExchangeAlgorithm {
 public:
  using ExchangeAlgorithm::ExchangeAlgorithm;

  void start(Call& call, ChunkInFlight& flight) const override {
    post_receives(call, flight);
    const std::size_t first = lane_.own_first();
    const std::size_t partials = lane_.own_count();
    const int nodes = lane_.num_nodes();
    flight.outgoing.resize(std::max(flight.outgoing.size(), flight.share.size() * partials));
    for (int step = 1; step <= nodes; ++step) {
      const int node = (lane_.node() + step) % nodes;  // each node begins with another one
      const Range piece = piece_of(flight, node);
      if (piece.size() == 0) continue;
      if (node == lane_.node()) {
        sum_own_partials(call, flight, piece, own_partials(flight));
        continue;
      }
      if (const std::byte* const from = call.data().input_to_send(piece)) {
        send(flight, node, kPartialTag, {from, piece.size()});
        continue;
      }
      std::byte* const to = flight.outgoing.data() + (piece.begin - flight.share.begin) * partials;
      for (std::size_t i = 0; i < partials; ++i) {
        sum_partial(call, flight, first + i, piece, to + i * piece.size());
      }
      send(flight, node, kPartialTag, {to, piece.size() * partials});
    }
  }

  /// Stage 0: all partial sums of this node's piece have arrived. Stage 1: so have the other sums.
  void act(Call& call, ChunkInFlight& flight) const override {
    const Range piece = piece_of(flight, lane_.node());
    if (flight.stage > 0 || piece.size() == 0) return;
    std::byte* const sum = result_of(call, flight, lane_.node());
    combine(call, piece, flight.incoming.data(), sum);
    for (int step = 1; step < lane_.num_nodes(); ++step) {  // each node begins with another one
      const int node = (lane_.node() + step) % lane_.num_nodes();
      if (wants_result(call, node)) send(flight, node, kResultTag, {sum, piece.size()});
    }
  }

  void deliver(Call& call, ChunkInFlight& flight) const override {
    for (int node = 0; node < lane_.num_nodes(); ++node) {
      const Range piece = piece_of(flight, node);
      std::byte* const buffer = flight.result_at(piece.begin);
      if (piece.size() > 0 && result_of(call, flight, node) == buffer) {
        call.data().deliver_own(piece, buffer);
      }
    }
  }

 private:
  /// Returns where the sum of a node's piece is stored. Only this node's own piece may replace its
  /// input.
  [[nodiscard]] std::byte* result_of(const Call& call, ChunkInFlight& flight, int node) const {
    return place_of(call, flight, piece_of(flight, node), /*over_input=*/node == lane_.node());
  }

  [[nodiscard]] Range piece_of(const ChunkInFlight& flight, int node) const {
    return share_of(flight.share, lane_.num_nodes(), node);
  }

  /// True if the node needs the result. All segments of a reduce have one destination; those of an
  /// allreduce have every rank.
  [[nodiscard]] bool wants_result(const Call& call, int node) const {
    const int destination = call.layout().segments().front().destination;
    return destination == kEveryRank || lane_.topology.node_of(destination) == node;
  }

  /// Returns the place of this node's own partial sums among those of all nodes.
  [[nodiscard]] std::byte* own_partials(ChunkInFlight& flight) const {
    return flight.incoming.data() + piece_of(flight, lane_.node()).size() * lane_.own_first();
  }

  void post_receives(const Call& call, ChunkInFlight& flight) const {
    const std::size_t mine = piece_of(flight, lane_.node()).size();
    flight.incoming.resize(std::max(flight.incoming.size(), mine * lane_.plan.num_partials()));
    auto& gathers = flight.add_stage();
    for (int node = 0; node < lane_.num_nodes() && mine > 0; ++node) {
      if (node == lane_.node()) continue;
      std::byte* to = flight.incoming.data() + mine * lane_.plan.first_of(node);
      gathers.push_back(receive(node, kPartialTag, {to, mine * lane_.plan.count_of(node)}));
    }
    auto& results = flight.add_stage();
    for (int node = 0; node < lane_.num_nodes(); ++node) {
      const Range piece = piece_of(flight, node);
      if (node == lane_.node() || piece.size() == 0 || !wants_result(call, lane_.node())) continue;
      results.push_back(receive(node, kResultTag, {result_of(call, flight, node), piece.size()}));
    }
  }
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> direct_exchange(const Lane& lane) {
  return std::make_unique<DirectExchange>(lane);
}

}  // namespace tutti::collectives
