// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/exchange.hpp"

#include "tutti/error.hpp"

namespace tutti::collectives {

void ChunkInFlight::clear() {
  num_stages = 0;
  stage = 0;
  sends.clear();
}

std::vector<LaneMessage>& ChunkInFlight::add_stage() {
  if (receives.size() == num_stages) receives.emplace_back();
  return receives[num_stages++];
}

Transport::Request Transport::allreduce(std::byte*, std::size_t, DType, ReduceOp) {
  throw Error(ErrorCode::communication, "this transport has no allreduce of its own");
}

void ExchangeAlgorithm::deliver(Call& call, ChunkInFlight& flight) const {
  call.data().deliver_own(flight.share, flight.result.data());
}

void ExchangeAlgorithm::sum_partial(Call& call, const ChunkInFlight& flight, std::size_t index,
                                    Range range, std::byte* to) const {
  const Partial partial = lane_.plan.partial(index);
  Sources subtree = flight.sources;
  subtree.first = partial.first;
  subtree.count = partial.count;
  if (call.operation().lanes_apart) {
    subtree.first = lane_.topology.local_rank;
    subtree.count = 1;
  }
  call.data().reduce_to_buffer(range, subtree, to);
}

void ExchangeAlgorithm::sum_own_partials(Call& call, const ChunkInFlight& flight, Range range,
                                         std::byte* to) const {
  const std::size_t first = lane_.own_first();
  const std::size_t count = lane_.own_count();
  const std::size_t bytes = range.size();
  call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
    if (call.data().input_as_carried(part) != nullptr) return;
    const std::size_t end = part.position + part.count * size_of(call.layout().wire(part.segment));
    for (std::size_t i = 0; i < count; ++i) {
      sum_partial(call, flight, first + i, {part.position, end},
                  to + i * bytes + (part.position - range.begin));
    }
  });
}

/// Combines all partial sums at once where that gives the same bits as single steps. It does not
/// for 16-bit floating-point types, where every step rounds.
void ExchangeAlgorithm::combine(Call& call, Range range, std::byte* partials,
                                std::byte* sum) const {
  const CombinePlan& plan = lane_.plan;
  const ReduceOp op = call.operation().reduce;
  call.turn_to(Activity::reduce);
  std::vector<const std::byte*> values(plan.num_partials());
  call.layout().for_each_part(range, [&](const FusedLayout::Part& part) {
    const std::size_t offset = part.position - range.begin;
    const auto kept = [&](std::size_t partial) {
      return partials + partial * range.size() + offset;
    };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = kept(i);
    if (const std::byte* const input = call.data().input_as_carried(part)) {
      values[lane_.own_first()] = input;
    }
    const DType wire = call.layout().wire(part.segment);
    const Reduction step{combining(op), wire, wire};
    std::byte* const result = sum + offset;
    if (plan.is_tree_of_nodes() && (size_of(wire) != 2 || values.size() == 2)) {
      return call.workers().reduce(step, values, std::span(&result, 1), part.count,
                                   WritePolicy::cached);
    }
    std::size_t steps_left = plan.num_partials() - 1;
    plan.for_each_step([&](int left, int right) {
      const auto sum_of_both = static_cast<std::size_t>(left);
      const std::byte* const operands[] = {values[sum_of_both],
                                           values[static_cast<std::size_t>(right)]};
      std::byte* const to = --steps_left == 0 ? result : kept(sum_of_both);
      call.workers().reduce(step, operands, std::span(&to, 1), part.count, WritePolicy::cached);
      values[sum_of_both] = to;
    });
  });
  if (op == ReduceOp::avg) divide_by_ranks(call.layout(), range, plan, sum);
}

}  // namespace tutti::collectives
