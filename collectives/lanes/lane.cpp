// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/lane.hpp"

#include <algorithm>
#include <limits>

#include "collectives/job/leak.hpp"

namespace tutti::collectives {

namespace {

std::unique_ptr<ExchangeAlgorithm> make_exchange(Exchange exchange, const Lane& lane) {
  switch (exchange) {
    case Exchange::direct:
      return direct_exchange(lane);
    case Exchange::halving:
      return halving_exchange(lane);
    case Exchange::mpi:
      return mpi_exchange(lane);
  }
  return nullptr;
}

}  // namespace

LaneExchange::LaneExchange(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
                           Transport& transport, const Tuning& tuning)
    : lane_{topology, plan, transport},
      waiter_(waiter),
      sums_(make_exchange(tuning.exchange, lane_)),
      sums_to_root_(direct_exchange(lane_)),
      scattered_sums_(scatter_exchange(lane_)),
      compressed_sums_(compressed_exchange(lane_)),
      copies_(copy_exchange(lane_, tuning.chain_bytes)) {
  for (std::size_t i = 0; i < tuning.chunks_in_flight; ++i) {
    flights_.push_back(std::make_unique<ChunkInFlight>());
  }
}

/// Leaks the buffers of messages that may still be under way after a failure.
LaneExchange::~LaneExchange() {
  for (auto& flight : flights_) {
    if (flight->under_way) leak_until_exit(std::shared_ptr<const ChunkInFlight>(std::move(flight)));
  }
}

const ExchangeAlgorithm& LaneExchange::algorithm_for(const Call& call) const {
  if (call.operation().packing != nullptr) return *compressed_sums_;
  if (has_single_sources(call.layout())) return *copies_;
  switch (call.operation().kind) {
    case Kind::reduce:
      return *sums_to_root_;
    case Kind::reduce_scatter:
      return *scattered_sums_;
    default:
      return *sums_;
  }
}

void LaneExchange::start(Call& call, std::size_t chunk_index, Range chunk, std::size_t slot) {
  if (chunk_index == 0) {
    oldest_ = 0;
    algorithm_ = &algorithm_for(call);
  }
  next_ = chunk_index + 1;
  ChunkInFlight& starting = flight(chunk_index);
  starting.clear();
  starting.chunk = chunk;
  starting.share = call.operation().lanes_apart
                       ? chunk
                       : share_of(chunk, lane_.topology.num_lanes(), lane_.topology.local_rank);
  starting.sources = {chunk, slot, 0, lane_.topology.local_size()};
  starting.result.resize(std::max(starting.result.size(), starting.share.size()));
  starting.under_way = true;
  algorithm_->start(call, starting);
}

/// Does the stages up to `limit` whose receives are complete. Receivers post their receives in the
/// order of chunks, so no chunk may overtake an older one.
void LaneExchange::advance(Call& call, ChunkInFlight& flight, std::size_t limit) {
  while (flight.stage < std::min(limit, flight.num_stages) &&
         all_done(flight.receives[flight.stage])) {
    const Activity before = call.spans() == nullptr ? Activity::network : call.spans()->activity();
    algorithm_->act(call, flight);
    call.turn_to(before);
    ++flight.stage;
  }
  if (flight.stage == flight.num_stages && all_done(flight.sends)) flight.under_way = false;
}

bool LaneExchange::all_done(std::vector<LaneMessage>& messages) {
  std::erase_if(messages,
                [&](const LaneMessage& message) { return lane_.transport.done(message.request); });
  return messages.empty();
}

void LaneExchange::poll(Call& call) {
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  for (std::size_t chunk = oldest_; chunk < next_ && limit > 0; ++chunk) {
    ChunkInFlight& one = flight(chunk);
    if (one.under_way) advance(call, one, limit);
    if (one.stage < one.num_stages) limit = one.stage;
  }
}

void LaneExchange::finish(Call& call, std::size_t chunk_index, std::size_t slot) {
  ChunkInFlight& finishing = flight(chunk_index);
  call.turn_to(Activity::network);
  const auto ready = [&] {
    poll(call);
    return !finishing.under_way;
  };
  waiter_.until(ready, [&] { return ranks_awaited(finishing); });
  oldest_ = chunk_index + 1;
  if (call.is_alone_in_lane()) return algorithm_->deliver(call, finishing);
  call.data().spread_to_all(finishing.share, finishing.result.data(), finishing.chunk, slot);
}

/// Returns the ranks whose messages the chunk still needs, or else those that have not yet received
/// its messages.
std::vector<int> LaneExchange::ranks_awaited(const ChunkInFlight& flight) const {
  const auto& messages =
      flight.stage < flight.num_stages ? flight.receives[flight.stage] : flight.sends;
  std::vector<int> ranks;
  for (int node = 0; node < lane_.num_nodes(); ++node) {
    if (node == lane_.node()) continue;
    const bool is_awaited = std::any_of(messages.begin(), messages.end(), [&](const auto& message) {
      return message.node == node || message.node == LaneMessage::kAllNodes;
    });
    if (is_awaited) ranks.push_back(lane_.rank_on(node));
  }
  return ranks;
}

}  // namespace tutti::collectives
