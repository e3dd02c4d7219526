// SPDX-License-Identifier: Apache-2.0
// Large data in one node.
//
// Direct, when all inputs and outputs lie in arenas: rank r reduces share r from all inputs
// straight into all outputs (of 3 ranks, s0 s1 s2 are the shares):
//
//   inputs   rank 0 [s0 s1 s2]    rank 1 [s0 s1 s2]    rank 2 [s0 s1 s2]
//                       |                    |                    |
//                       +-----> rank 1 sums s1 of all ranks <-----+
//                       |                    |                    |
//   outputs  rank 0 [.. s1 ..]    rank 1 [.. s1 ..]    rank 2 [.. s1 ..]
//
// Otherwise chunk by chunk through two scratch slots in turn: inputs that peers cannot read are
// copied into the stage slot first, and results that peers must not write (private outputs, or a
// consumer such as an optimizer) go to the result slot and are delivered from there by their owner
// while they are in its cache.
//
// Cost per rank, of n bytes on P ranks: direct reads and writes n each and waits twice; out of
// place adds a copy per slot and two waits per chunk. Few ranks with private inputs do better by
// each summing everything for itself: see Tuning::own_sum_ranks.
//
// Slots are reused without further waiting: a rank that writes slot k % 2 of chunk k + 2 has seen
// all signals of chunk k + 1, which come after everybody's last use of chunk k.
#include "collectives/algorithms.hpp"

namespace tutti::collectives {

namespace {

void reduce_direct(Call& call, const Tuning& tuning) {
  const int ranks = call.memory().size();
  const Range all{0, call.layout().total()};
  call.reduce_to_all(share_of(all, ranks, call.memory().local_rank), {all, 0, 0, ranks},
                     tuning.output_writes(all.end, ranks));
  call.signal();
  call.wait_for_all();
}

}  // namespace

void reduce_in_node(Call& call, const Tuning& tuning) {
  if (call.inputs_shared() && call.in_place()) return reduce_direct(call, tuning);
  const int ranks = call.memory().size();
  const bool each_for_itself =
      ranks == 1 || (ranks <= tuning.own_sum_ranks && call.inputs_private());
  const std::size_t total = call.layout().total();
  const WritePolicy slots = tuning.slot_writes(total);
  const WritePolicy outputs = tuning.output_writes(total, ranks);
  int slot = 0;
  for (std::size_t begin = 0; begin < total; begin += tuning.chunk_bytes, slot ^= 1) {
    const Range chunk{begin, std::min(total, begin + tuning.chunk_bytes)};
    const Sources sources{chunk, slot, 0, ranks};
    call.waiter().check_failure();
    if (!call.inputs_shared()) {
      call.stage(chunk, slot, slots);
      call.signal();
      call.wait_for_all();
    }
    if (each_for_itself) {
      call.reduce_to_self(chunk, sources, outputs);
      continue;
    }
    call.reduce_to_all(share_of(chunk, ranks, call.memory().local_rank), sources, slots);
    call.signal();
    call.wait_for_all();
    if (!call.in_place()) call.deliver(chunk, slot, outputs);
  }
}

}  // namespace tutti::collectives
