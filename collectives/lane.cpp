// SPDX-License-Identifier: Apache-2.0
#include "collectives/lane.hpp"

#include <algorithm>

#include "collectives/combine.hpp"
#include "collectives/keep.hpp"

namespace tutti::collectives {

/// One chunk on its way. Its buffers stay where they are while messages refer to them.
struct LaneExchange::Flight {
  enum class State { idle, gathering, spreading };

  State state = State::idle;
  Range chunk;
  Range share;                      ///< of the chunk, this lane's
  std::vector<std::byte> outgoing;  ///< this node's partials: piece by piece, partial by partial
  std::vector<std::byte> incoming;  ///< all nodes' partials of this node's piece, in plan order
  std::vector<std::byte> result;    ///< the share
  std::vector<Transport::Request> gathers;
  std::vector<Transport::Request> spreads;
};

LaneExchange::LaneExchange(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                           Transport& transport, std::size_t chunks_in_flight)
    : topology_(topology), plan_(plan), waiter_(waiter), transport_(transport) {
  for (int node = 0; node < topology.num_nodes(); ++node) {
    partials_of_.push_back(plan.of_node(node));
  }
  for (std::size_t i = 0; i < chunks_in_flight; ++i) {
    flights_.push_back(std::make_unique<Flight>());
  }
}

/// After a failure messages may still be under way: their buffers are left to them.
LaneExchange::~LaneExchange() {
  for (auto& flight : flights_) {
    if (flight->state != Flight::State::idle) {
      keep_until_exit(std::shared_ptr<const Flight>(std::move(flight)));
    }
  }
}

void LaneExchange::start(Call& call, std::size_t chunk_index, Range chunk, int slot) {
  Flight& flight = *flights_[chunk_index % flights_.size()];
  if (chunk_index == 0) oldest_ = 0;
  next_ = chunk_index + 1;
  flight.chunk = chunk;
  flight.share = share_of(chunk, topology_.num_lanes(), topology_.local_rank);
  flight.result.resize(std::max(flight.result.size(), flight.share.size()));
  const Sources sources{chunk, slot, 0, topology_.local_size()};
  if (has_single_sources(call.layout())) {
    start_copies(call, flight, sources);
  } else {
    start_allreduce(call, flight, sources);
  }
}

void LaneExchange::start_allreduce(Call& call, Flight& flight, const Sources& sources) {
  const int nodes = topology_.num_nodes();
  const int me = topology_.node;
  const auto piece_of = [&](int node) { return share_of(flight.share, nodes, node); };
  const auto peer = [&](int node) { return topology_.nodes[node][topology_.local_rank]; };

  // Receives first, so that messages find their place.
  const std::size_t mine = piece_of(me).size();
  flight.incoming.resize(std::max(flight.incoming.size(), mine * plan_.partials.size()));
  for (int node = 0; node < nodes; ++node) {
    if (node == me) continue;
    if (mine > 0) {
      std::byte* to = flight.incoming.data() + mine * partials_of_[node].front();
      flight.gathers.push_back(
          transport_.receive(peer(node), kPartialTag, {to, mine * partials_of_[node].size()}));
    }
    if (const Range piece = piece_of(node); piece.size() > 0) {
      std::byte* to = flight.result.data() + (piece.begin - flight.share.begin);
      flight.spreads.push_back(transport_.receive(peer(node), kResultTag, {to, piece.size()}));
    }
  }

  const auto& partials = partials_of_[me];
  flight.outgoing.resize(std::max(flight.outgoing.size(), flight.share.size() * partials.size()));
  for (int step = 1; step <= nodes; ++step) {
    const int node = (me + step) % nodes;  // not all nodes to node 0 at once; this node last
    const Range piece = piece_of(node);
    if (piece.size() == 0) continue;
    std::byte* to =
        node == me ? flight.incoming.data() + mine * partials.front()
                   : flight.outgoing.data() + (piece.begin - flight.share.begin) * partials.size();
    for (std::size_t i = 0; i < partials.size(); ++i) {
      const Partial& partial = plan_.partials[partials[i]];
      Sources subtree = sources;
      subtree.first = partial.first;
      subtree.count = partial.count;
      call.reduce_to_buffer(piece, subtree, to + i * piece.size());
    }
    if (node != me) {
      flight.spreads.push_back(
          transport_.send(peer(node), kPartialTag, {to, piece.size() * partials.size()}));
    }
  }
  flight.state = Flight::State::gathering;
}

/// Every segment goes from its source's node to the others.
void LaneExchange::start_copies(Call& call, Flight& flight, const Sources& sources) {
  flight.state = Flight::State::spreading;
  const int lane = topology_.local_rank;
  call.layout().for_each_part(flight.share, [&](const FlatLayout::Part& part) {
    const std::size_t width = size_of(call.layout().wire(part.segment));
    const Range range{part.position, part.position + part.count * width};
    const std::span<std::byte> bytes(flight.result.data() + (range.begin - flight.share.begin),
                                     range.size());
    const int source = call.segment(part).source;
    if (call.local_rank_of(source) < 0) {
      const auto& ranks = topology_.nodes[topology_.node_of(source)];
      flight.spreads.push_back(transport_.receive(ranks[lane], kResultTag, bytes));
      return;
    }
    call.reduce_to_buffer(range, sources, bytes.data());
    for (int node = 0; node < topology_.num_nodes(); ++node) {
      if (node == topology_.node) continue;
      flight.spreads.push_back(transport_.send(topology_.nodes[node][lane], kResultTag, bytes));
    }
  });
}

void LaneExchange::advance(Call& call, Flight& flight) {
  if (flight.state == Flight::State::gathering && all_done(flight.gathers)) {
    combine(call, flight);
    flight.state = Flight::State::spreading;
  }
  if (flight.state == Flight::State::spreading && all_done(flight.spreads)) {
    flight.state = Flight::State::idle;
  }
}

/// Adds the partial sums of this node's piece in canonical order, and sends the sum to all nodes.
void LaneExchange::combine(Call& call, Flight& flight) {
  const Range piece = share_of(flight.share, topology_.num_nodes(), topology_.node);
  if (piece.size() == 0) return;
  combine_partials(call.layout(), call.operation().reduce, piece, plan_, flight.incoming.data());
  std::byte* sum = flight.result.data() + (piece.begin - flight.share.begin);
  std::copy_n(flight.incoming.data(), piece.size(), sum);
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    if (node == topology_.node) continue;
    flight.spreads.push_back(transport_.send(topology_.nodes[node][topology_.local_rank],
                                             kResultTag, {sum, piece.size()}));
  }
}

bool LaneExchange::all_done(std::vector<Transport::Request>& requests) {
  std::erase_if(requests, [&](Transport::Request request) { return transport_.done(request); });
  return requests.empty();
}

/// Oldest first, and no chunk overtakes another in sending its result: the receivers have posted
/// their receives in the order of chunks.
void LaneExchange::poll(Call& call) {
  for (std::size_t chunk = oldest_; chunk < next_; ++chunk) {
    Flight& flight = *flights_[chunk % flights_.size()];
    advance(call, flight);
    if (flight.state == Flight::State::gathering) return;
  }
}

void LaneExchange::finish(Call& call, std::size_t chunk_index, int slot) {
  Flight& flight = *flights_[chunk_index % flights_.size()];
  const auto ready = [&] {
    poll(call);
    return flight.state == Flight::State::idle;
  };
  waiter_.until(ready, [&] { return lane_ranks_elsewhere(); });
  oldest_ = chunk_index + 1;
  call.spread_to_all(flight.share, flight.result.data(), flight.chunk, slot);
}

std::vector<int> LaneExchange::lane_ranks_elsewhere() const {
  std::vector<int> ranks;
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    if (node != topology_.node) ranks.push_back(topology_.nodes[node][topology_.local_rank]);
  }
  return ranks;
}

}  // namespace tutti::collectives
