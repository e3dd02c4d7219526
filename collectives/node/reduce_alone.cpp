// SPDX-License-Identifier: Apache-2.0
// Reduces large data in a job of one rank, which has no other rank to share the work or to wait
// for.
//
//   inputs    |  stretch 0  |  stretch 1  |  stretch 2  |  stretch 3  |
//                   |              |             |              |
//                caller         helper        helper         caller       each sums its stretch,
//                   |              |             |              |         and updates from the sum
//   outputs   |  stretch 0  |  stretch 1  |  stretch 2  |  stretch 3  |   in its own cache
//
// Inputs are read where they lie, even in ordinary memory. Several values of a key are summed on
// the way to the output, so that their sum is never written to memory.
//
// Cost for n bytes and v values of each key: reads v n, writes n; the threads wait for each other
// once, at the end.
#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

void reduce_alone(Call& call, const Tuning& tuning) {
  call.data().reduce_alone(tuning.output_writes(call.layout().total(), 1));
}

}  // namespace tutti::collectives
