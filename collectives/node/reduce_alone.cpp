// SPDX-License-Identifier: Apache-2.0
// Large data in a job of one rank: there is nobody to share it with, or to wait for.
//
//   inputs    |  stretch 0  |  stretch 1  |  stretch 2  |  stretch 3  |
//                   |              |             |              |
//                caller         helper        helper         caller       each sums its stretch,
//                   |              |             |              |         and updates from the sum
//   outputs   |  stretch 0  |  stretch 1  |  stretch 2  |  stretch 3  |   in its own cache
//
// Inputs are read where they lie, ordinary memory too. Several values of a key are summed on the
// way, so their sum goes through no memory.
//
// Cost, of n bytes and v values of each key: reads v n, writes n; the threads meet once, at the
// end.
#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

void reduce_alone(Call& call, const Tuning& tuning) {
  call.data().reduce_alone(tuning.output_writes(call.layout().total(), 1));
}

}  // namespace tutti::collectives
