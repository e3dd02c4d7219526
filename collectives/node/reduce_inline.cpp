// SPDX-License-Identifier: Apache-2.0
// Small data in one node: it came with the announcements.
//
//   announce     rank 0: [signature | x0]   rank 1: [signature | x1]   rank 2: [signature | x2]
//   every rank   waits for all lines, reads the other ranks' payloads, reduces for itself
//
// Up to 24 bytes of one segment lie in the line of the signature itself: see TinyCall.
//
// Cost: one line written and P - 1 lines read per rank; no second synchronisation, because the
// lines alternate (see AnnounceLine). Wins where the latency between cores is all that counts: up
// to kInlineInNode. A broadcast reads the root's payload alone; it still waits for every rank, for
// the same reason.
#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

void reduce_inline(Call& call) { call.data().reduce_payloads_to_self(); }

}  // namespace tutti::collectives
