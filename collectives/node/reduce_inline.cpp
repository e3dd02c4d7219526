// SPDX-License-Identifier: Apache-2.0
// Reduces small data in one node, where it arrives with the announcements.
//
//   announce     rank 0: [signature | x0]   rank 1: [signature | x1]   rank 2: [signature | x2]
//   every rank   waits for all lines, reads the other ranks' payloads, reduces for itself
//
// Up to 32 bytes of one rank's data lie in the line of the signature itself, see TinyCall.
//
// Cost: each rank writes one line and reads P - 1 lines. No second synchronisation is needed,
// because the lines alternate (see AnnounceLine). It is the fastest way where only the latency
// between cores counts: up to kInlineInNode. A broadcast reads only the root's payload, but still
// waits for every rank, because of the alternating lines.
#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

void reduce_inline(Call& call) { call.data().reduce_payloads_to_self(); }

}  // namespace tutti::collectives
