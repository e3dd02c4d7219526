// SPDX-License-Identifier: Apache-2.0
// Segments that come from one rank each: a broadcast, an allgather; and those that also go to one
// rank alone: a gather, a scatter, an alltoall.
//
//   direct: the source's node sends to all others         chain: every node sends to the next
//
//       node 1 --> node 2, node 0                         node 1 --> node 2 --> node 0
//
// Cost, for n bytes on N nodes: direct is one round, but in a broadcast n (N-1) bytes leave one
// node. A chain moves n through every link, and its last node has a piece N - 1 messages later. A
// chain wins for a broadcast that is cut into pieces. In an allgather every node is a source, and
// direct moves the fewest bytes. What goes to one rank is sent to its node alone: each byte crosses
// once, if at all.
#include "collectives/exchange.hpp"

namespace tutti::collectives {

namespace {

class CopyExchange final : public ExchangeAlgorithm {
 public:
  CopyExchange(const Lane& lane, std::size_t chain_bytes)
      : ExchangeAlgorithm(lane), chain_bytes_(chain_bytes) {}

  void start(Call& call, ChunkInFlight& flight) const override {
    auto& arrivals = flight.add_stage();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const std::span<std::byte> bytes = bytes_of(call, flight, part);
      const int source = lane_.topology.node_of(call.segment(part).source);
      const int destination = destination_of(call.segment(part));
      if (source != lane_.node()) {
        if (destination != kEveryRank && destination != lane_.node()) return;
        const int from = is_chain(call) ? (lane_.node() + lane_.num_nodes() - 1) : source;
        arrivals.push_back(receive(from % lane_.num_nodes(), kResultTag, bytes));
        return;
      }
      call.reduce_to_buffer({part.position, part.position + bytes.size()}, flight.sources,
                            bytes.data());
      if (destination == kEveryRank) {
        send_on(call, flight, source, bytes);
      } else if (destination != lane_.node()) {
        send(flight, destination, kResultTag, bytes);
      }
    });
  }

  /// Passes on what has come.
  void act(Call& call, ChunkInFlight& flight) const override {
    if (!is_chain(call)) return;
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const int source = lane_.topology.node_of(call.segment(part).source);
      if (source != lane_.node()) send_on(call, flight, source, bytes_of(call, flight, part));
    });
  }

 private:
  [[nodiscard]] bool is_chain(const Call& call) const {
    return call.operation().kind == Kind::broadcast && call.layout().total() >= chain_bytes_;
  }

  /// The only node that wants a segment, or kEveryRank.
  [[nodiscard]] int destination_of(const Segment& segment) const {
    return segment.destination == kEveryRank ? kEveryRank
                                             : lane_.topology.node_of(segment.destination);
  }

  [[nodiscard]] static std::span<std::byte> bytes_of(const Call& call, ChunkInFlight& flight,
                                                     const FusedLayout::Part& part) {
    return {flight.result_at(part.position),
            part.count * size_of(call.layout().wire(part.segment))};
  }

  void send_on(const Call& call, ChunkInFlight& flight, int source,
               std::span<const std::byte> bytes) const {
    const int nodes = lane_.num_nodes();
    const int steps = is_chain(call) ? 1 : nodes - 1;
    for (int step = 1; step <= steps; ++step) {
      const int node = (lane_.node() + step) % nodes;
      if (node != source) send(flight, node, kResultTag, bytes);
    }
  }

  std::size_t chain_bytes_;
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> copy_exchange(const Lane& lane, std::size_t chain_bytes) {
  return std::make_unique<CopyExchange>(lane, chain_bytes);
}

}  // namespace tutti::collectives
