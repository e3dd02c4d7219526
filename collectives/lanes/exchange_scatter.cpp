// SPDX-License-Identifier: Apache-2.0
// Scatter exchange: sums with a single destination, as in a reduce_scatter.
//
//   node 0  [s0 s1 s2]   s1 --> node 1, s2 --> node 2     the destination's node sums its segments,
//   node 1  [s0 s1 s2]   s0 --> node 0, s2 --> node 2     in tree order; nothing is sent back
//
// Cost, for n bytes on N nodes: one round; n (N-1)/N bytes sent and received per node, half of an
// allreduce, and the minimum. A node has buffers for the partial sums from all nodes of what it
// keeps: less than two shares, because reduce_in_lanes() gives it about an N-th of each share.
#include <algorithm>

#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

class ScatterExchange final : public ExchangeAlgorithm {
 public:
  using ExchangeAlgorithm::ExchangeAlgorithm;

  void start(Call& call, ChunkInFlight& flight) const override {
    const std::size_t first = lane_.own_first();
    const std::size_t own = lane_.own_count();
    const std::size_t all = lane_.plan.num_partials();
    const std::size_t kept = kept_bytes(call, flight.share);
    flight.outgoing.resize(std::max(flight.outgoing.size(), (flight.share.size() - kept) * own));
    flight.incoming.resize(std::max(flight.incoming.size(), kept * all));
    auto& gathers = flight.add_stage();
    std::byte* to = flight.outgoing.data();
    std::byte* partials = flight.incoming.data();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const Range range = range_of(call, part);
      const int owner = owner_of(call, part);
      if (owner == lane_.node()) {
        receive_partials(gathers, range, partials);
        sum_own_partials(call, flight, range, partials + range.size() * first);
        partials += room_for(range) * all;
        return;
      }
      for (std::size_t i = 0; i < own; ++i) {
        sum_partial(call, flight, first + i, range, to + i * range.size());
      }
      send(flight, owner, kPartialTag, {to, own * range.size()});
      to += room_for(range) * own;
    });
  }

  void act(Call& call, ChunkInFlight& flight) const override {
    const std::size_t all = lane_.plan.num_partials();
    std::byte* partials = flight.incoming.data();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      if (owner_of(call, part) != lane_.node()) return;
      const Range range = range_of(call, part);
      combine(call, range, partials, flight.result_at(range.begin));
      partials += room_for(range) * all;
    });
  }

 private:
  [[nodiscard]] static Range range_of(const Call& call, const FusedLayout::Part& part) {
    return {part.position, part.position + part.count * size_of(call.layout().wire(part.segment))};
  }

  /// Returns the size of a range with padding, so that every part begins at a line.
  [[nodiscard]] static std::size_t room_for(Range range) {
    constexpr std::size_t kLine = FusedLayout::kAlignment;
    return (range.size() + kLine - 1) / kLine * kLine;
  }

  [[nodiscard]] int owner_of(const Call& call, const FusedLayout::Part& part) const {
    return lane_.topology.node_of(call.segment(part).destination);
  }

  /// Returns the bytes of a range that this node sums, and has partial sums of from all nodes.
  [[nodiscard]] std::size_t kept_bytes(const Call& call, Range range) const {
    std::size_t bytes = 0;
    call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
      if (owner_of(call, part) == lane_.node()) bytes += room_for(range_of(call, part));
    });
    return bytes;
  }

  void receive_partials(std::vector<LaneMessage>& gathers, Range range, std::byte* partials) const {
    for (int node = 0; node < lane_.num_nodes(); ++node) {
      if (node == lane_.node()) continue;
      std::byte* to = partials + range.size() * lane_.plan.first_of(node);
      gathers.push_back(receive(node, kPartialTag, {to, range.size() * lane_.plan.count_of(node)}));
    }
  }
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> scatter_exchange(const Lane& lane) {
  return std::make_unique<ScatterExchange>(lane);
}

}  // namespace tutti::collectives
