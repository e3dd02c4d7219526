// SPDX-License-Identifier: Apache-2.0
#include "collectives/exchange.hpp"

#include "tutti/error.hpp"

namespace tutti::collectives {

Lane::Lane(const Topology& its_topology, const CombinePlan& its_plan, Transport& its_transport)
    : topology(its_topology),
      plan(its_plan),
      transport(its_transport),
      sums_by_node(is_tree_of_nodes(its_plan, its_topology.nodes)) {
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

void ExchangeAlgorithm::deliver(Call& call, ChunkInFlight& flight, int slot) const {
  call.deliver_own(flight.share, flight.result.data(), slot);
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

void ExchangeAlgorithm::sum_own_partials(Call& call, const ChunkInFlight& flight, Range range,
                                         std::byte* to) const {
  const auto& own = lane_.partials_of[lane_.node()];
  const std::size_t bytes = range.size();
  call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
    if (call.input_as_carried(part) != nullptr) return;
    const std::size_t end = part.position + part.count * size_of(call.layout().wire(part.segment));
    for (const int partial : own) {
      std::byte* const place = to + static_cast<std::size_t>(partial - own.front()) * bytes;
      sum_partial(call, flight, partial, {part.position, end},
                  place + (part.position - range.begin));
    }
  });
}

/// Several steps at once give the bits of one after the other, but for 16-bit floating-point types,
/// of which every step rounds.
void ExchangeAlgorithm::combine(Call& call, Range range, std::byte* partials,
                                std::byte* sum) const {
  const CombinePlan& plan = lane_.plan;
  const ReduceOp op = call.operation().reduce;
  call.turn_to(Activity::reduce);
  std::vector<const std::byte*> values(plan.partials.size());
  call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - range.begin;
    const auto kept = [&](int partial) {
      return partials + static_cast<std::size_t>(partial) * range.size() + offset;
    };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = kept(static_cast<int>(i));
    if (const std::byte* const input = call.input_as_carried(part)) {
      values[lane_.partials_of[lane_.node()].front()] = input;
    }
    const DType wire = call.layout().wire(part.segment);
    const Reduction step{combining(op), wire, wire};
    std::byte* const result = sum + offset;
    if (lane_.sums_by_node && (size_of(wire) != 2 || values.size() == 2)) {
      return call.workers().reduce(step, values, std::span(&result, 1), part.count,
                                   WritePolicy::cached);
    }
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const auto [left, right] = plan.steps[i];
      const std::byte* const operands[] = {values[left], values[right]};
      std::byte* const to = i + 1 == plan.steps.size() ? result : kept(left);
      call.workers().reduce(step, operands, std::span(&to, 1), part.count, WritePolicy::cached);
      values[left] = to;
    }
  });
  if (op == ReduceOp::avg) divide_by_ranks(call.layout(), range, plan, sum);
}

}  // namespace tutti::collectives
