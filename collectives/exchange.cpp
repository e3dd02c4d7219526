// SPDX-License-Identifier: Apache-2.0
#include "collectives/exchange.hpp"

#include "tutti/error.hpp"

namespace tutti::collectives {

Lane::Lane(const Topology& its_topology, const CombinePlan& its_plan, Transport& its_transport)
    : topology(its_topology), plan(its_plan), transport(its_transport) {
  for (int node = 0; node < num_nodes(); ++node) partials_of.push_back(plan.of_node(node));
}

void ChunkInFlight::clear() {
  num_stages = 0;
  stage = 0;
  sends.clear();
}

std::vector<Transport::Request>& ChunkInFlight::add_stage() {
  if (receives.size() == num_stages) receives.emplace_back();
  return receives[num_stages++];
}

Transport::Request Transport::allreduce(std::byte*, std::size_t, DType, ReduceOp) {
  throw Error(ErrorCode::communication, "this transport has no allreduce of its own");
}

void ExchangeAlgorithm::sum_partial(Call& call, const ChunkInFlight& flight, int partial,
                                    Range range, std::byte* to) const {
  Sources subtree = flight.sources;
  subtree.first = lane_.plan.partials[partial].first;
  subtree.count = lane_.plan.partials[partial].count;
  if (call.operation().lanes_apart) {
    subtree.first = lane_.topology.local_rank;
    subtree.count = 1;
  }
  call.reduce_to_buffer(range, subtree, to);
}

}  // namespace tutti::collectives
