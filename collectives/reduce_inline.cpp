// SPDX-License-Identifier: Apache-2.0
// Small data in one node: it came with the announcements.
//
//   announce     rank 0: [signature | x0]   rank 1: [signature | x1]   rank 2: [signature | x2]
//   every rank   waits for all lines, reads all payloads, reduces for itself
//
// Cost: one line written and P - 1 lines read per rank; no second synchronisation, because the
// lines alternate (see AnnounceLine). Wins where hand-overs are all that counts: up to
// kAlwaysInlineBytes, and up to kInlineBytes for ordinary memory. A broadcast reads the root's
// payload alone; it still waits for every rank, for the same reason.
//
// If only some ranks have ordinary memory, the others' inputs are read from their arenas, and a
// wait is needed before anybody may write there: an output may be an input.
#include "collectives/algorithms.hpp"

namespace tutti::collectives {

void reduce_inline(Call& call) {
  if (call.payloads_from_all()) return call.reduce_payloads_to_self();
  alignas(FlatLayout::kAlignment) std::byte scratch[kInlineBytes];
  call.reduce_payloads_to_buffer(0, call.memory().size(), scratch);
  call.signal();
  call.wait_for_all();
  call.deliver_wire(scratch);
}

}  // namespace tutti::collectives
