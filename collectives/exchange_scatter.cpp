// SPDX-License-Identifier: Apache-2.0
// Sums that go to one rank each: a reduce_scatter.
//
//   node 0  [s0 s1 s2]   s1 --> node 1, s2 --> node 2     the destination's node sums its segments,
//   node 1  [s0 s1 s2]   s0 --> node 0, s2 --> node 2     in tree order; nothing is sent back
//
// Cost, of n bytes on N nodes: one round; n (N-1)/N bytes sent and received per node, half of an
// allreduce, and the least possible.
#include <algorithm>

#include "collectives/exchange.hpp"

namespace tutti::collectives {

namespace {

class ScatterExchange final : public ExchangeAlgorithm {
 public:
  using ExchangeAlgorithm::ExchangeAlgorithm;

  void start(Call& call, ChunkInFlight& flight) const override {
    const std::size_t first = lane_.own_first();
    const std::size_t own = lane_.own_count();
    const std::size_t all = lane_.plan.num_partials();
    flight.outgoing.resize(std::max(flight.outgoing.size(), flight.share.size() * own));
    flight.incoming.resize(std::max(flight.incoming.size(), flight.share.size() * all));
    auto& gathers = flight.add_stage();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const Range range = range_of(call, part);
      const std::size_t offset = range.begin - flight.share.begin;
      const int owner = lane_.topology.node_of(call.segment(part).destination);
      if (owner == lane_.node()) {
        std::byte* const partials = flight.incoming.data() + offset * all;
        receive_partials(gathers, range, partials);
        sum_own_partials(call, flight, range, partials + range.size() * first);
        return;
      }
      std::byte* const to = flight.outgoing.data() + offset * own;
      for (std::size_t i = 0; i < own; ++i) {
        sum_partial(call, flight, first + i, range, to + i * range.size());
      }
      send(flight, owner, kPartialTag, {to, own * range.size()});
    });
  }

  void act(Call& call, ChunkInFlight& flight) const override {
    const std::size_t all = lane_.plan.num_partials();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      if (lane_.topology.node_of(call.segment(part).destination) != lane_.node()) return;
      const Range range = range_of(call, part);
      std::byte* const partials = flight.incoming.data() + (range.begin - flight.share.begin) * all;
      combine(call, range, partials, flight.result_at(range.begin));
    });
  }

 private:
  [[nodiscard]] static Range range_of(const Call& call, const FusedLayout::Part& part) {
    return {part.position, part.position + part.count * size_of(call.layout().wire(part.segment))};
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
