// SPDX-License-Identifier: Apache-2.0
// Copy exchange: segments with a single source, as in a broadcast or an allgather; and those that
// also have a single destination, as in a gather, a scatter or an alltoall.
//
//   direct: the source's node sends to all others         chain: every node sends to the next
//
//       node 1 --> node 2, node 0                         node 1 --> node 2 --> node 0
//
// Cost, for n bytes on N nodes: direct takes one round, but in a broadcast n (N-1) bytes leave one
// node. A chain moves n bytes over every link, and a piece reaches its last node after N - 1
// messages. A chain is faster for a broadcast that is cut into pieces. In an allgather every node
// is a source, and direct moves the fewest bytes. Data for a single rank is sent only to its node,
// so each byte crosses at most once. Consecutive segments from one node to the same nodes travel as
// one message, including the padding between them: an allgather takes one message per pair of
// nodes, however many ranks these have.
#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

class CopyExchange final : public ExchangeAlgorithm {
 public:
  CopyExchange(const Lane& lane, std::size_t chain_bytes)
      : ExchangeAlgorithm(lane), chain_bytes_(chain_bytes) {}

  void start(Call& call, ChunkInFlight& flight) const override {
    auto& arrivals = flight.add_stage();
    for_each_run(call, flight.share, [&](const Run& run) {
      if (run.source != lane_.node()) {
        if (!is_wanted(run)) return;
        const int from = is_chain(call) ? lane_.node() + lane_.num_nodes() - 1 : run.source;
        std::byte* const to = place_of(call, flight, run.range, /*over_input=*/false);
        arrivals.push_back(receive(from % lane_.num_nodes(), kResultTag, {to, run.range.size()}));
        return;
      }
      if (call.data().input_to_send(run.range) == nullptr) {
        call.data().reduce_to_buffer(run.range, flight.sources, flight.result_at(run.range.begin));
      }
      if (run.destination == kEveryRank) {
        send_on(call, flight, run);
      } else if (run.destination != lane_.node()) {
        send(flight, run.destination, kResultTag, bytes_of(call, flight, run));
      }
    });
  }

  /// In a chain, passes on what has arrived.
  void act(Call& call, ChunkInFlight& flight) const override {
    if (!is_chain(call)) return;
    for_each_run(call, flight.share, [&](const Run& run) {
      if (run.source != lane_.node()) send_on(call, flight, run);
    });
  }

  /// Delivers this node's own data, and what was not received directly in the output.
  void deliver(Call& call, ChunkInFlight& flight) const override {
    for_each_run(call, flight.share, [&](const Run& run) {
      if (!is_wanted(run)) return;
      const std::byte* const from = bytes_of(call, flight, run).data();
      if (from == call.data().output_to_fill(run.range, /*over_input=*/true)) return;
      call.data().deliver_own(run.range, from);
    });
  }

 private:
  [[nodiscard]] bool is_chain(const Call& call) const {
    return call.operation().kind == Kind::broadcast && call.layout().total() >= chain_bytes_;
  }

  /// Consecutive parts of segments, from one node to one node or to all nodes (kEveryRank).
  struct Run {
    Range range;
    int source;
    int destination;
  };

  template <class Visit>
  void for_each_run(const Call& call, Range range, Visit&& visit) const {
    Run run{};
    call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
      const Segment& segment = call.segment(part);
      const int source = lane_.topology.node_of(segment.source);
      const int destination = destination_of(segment);
      const std::size_t end =
          part.position + part.count * size_of(call.layout().wire(part.segment));
      const bool follows = run.range.size() > 0 && source == run.source &&
                           destination == run.destination &&
                           part.position - run.range.end < FusedLayout::kAlignment;
      if (!follows) {
        if (run.range.size() > 0) visit(run);
        run = {{part.position, end}, source, destination};
      }
      run.range.end = end;
    });
    if (run.range.size() > 0) visit(run);
  }

  /// Returns the only node that wants a segment, or kEveryRank.
  [[nodiscard]] int destination_of(const Segment& segment) const {
    return segment.destination == kEveryRank ? kEveryRank
                                             : lane_.topology.node_of(segment.destination);
  }

  [[nodiscard]] bool is_wanted(const Run& run) const {
    return run.destination == kEveryRank || run.destination == lane_.node();
  }

  /// Returns the run's bytes on this node, which has sent or received them.
  [[nodiscard]] std::span<const std::byte> bytes_of(const Call& call, ChunkInFlight& flight,
                                                    const Run& run) const {
    const std::byte* from = flight.result_at(run.range.begin);
    if (run.source != lane_.node()) {
      from = place_of(call, flight, run.range, /*over_input=*/false);
    } else if (const std::byte* const input = call.data().input_to_send(run.range)) {
      from = input;
    }
    return {from, run.range.size()};
  }

  void send_on(const Call& call, ChunkInFlight& flight, const Run& run) const {
    const int nodes = lane_.num_nodes();
    const int steps = is_chain(call) ? 1 : nodes - 1;
    for (int step = 1; step <= steps; ++step) {
      const int node = (lane_.node() + step) % nodes;
      if (node != run.source) send(flight, node, kResultTag, bytes_of(call, flight, run));
    }
  }

  std::size_t chain_bytes_;
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> copy_exchange(const Lane& lane, std::size_t chain_bytes) {
  return std::make_unique<CopyExchange>(lane, chain_bytes);
}

}  // namespace tutti::collectives
