// SPDX-License-Identifier: Apache-2.0
// MPI exchange: MPI_Allreduce between nodes, for comparison, and for MPIs that know their network
// better.
//
//   lane 0: MPI_Iallreduce of share 0 over rank 0 of every node; lane 1: of share 1; ...
//
// Cost and order of summation are MPI's: the bits are equal on all ranks, but may differ between
// runs and from those of other algorithms. It is only used if TUTTI_ALGORITHMS asks for it.
#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

class MpiExchange final : public ExchangeAlgorithm {
 public:
  using ExchangeAlgorithm::ExchangeAlgorithm;

  void start(Call& call, ChunkInFlight& flight) const override {
    if (flight.share.size() == 0) return;
    const std::size_t partial = lane_.own_first();
    sum_partial(call, flight, partial, flight.share, flight.result.data());
    auto& sums = flight.add_stage();
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const Transport::Request sum = lane_.transport.allreduce(
          flight.result_at(part.position), part.count, call.layout().wire(part.segment),
          combining(call.operation().reduce));
      sums.push_back({LaneMessage::kAllNodes, sum});
    });
  }

  void act(Call& call, ChunkInFlight& flight) const override {
    if (call.operation().reduce != ReduceOp::avg) return;
    divide_by_ranks(call.layout(), flight.share, lane_.plan, flight.result.data());
  }
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> mpi_exchange(const Lane& lane) {
  return std::make_unique<MpiExchange>(lane);
}

}  // namespace tutti::collectives
