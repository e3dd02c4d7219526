// SPDX-License-Identifier: Apache-2.0
// The keys of a store of the C API, the comparison of its replicas, and the cost of calls.
#ifndef TUTTI_C_OBSERVE_H
#define TUTTI_C_OBSERVE_H

#include <stdint.h>

#include "tutti/c/communicator.h"
#include "tutti/c/key.h"
#include "tutti/c/kvstore.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The keys that a store holds, ascending; after a load those of the checkpoint. `keys` points to
/// `num_keys` of them, until the next call for this store or the store's end. Local.
TUTTI_API int tutti_kvstore_keys(tutti_kvstore* kv, const tutti_key** keys, int* num_keys);

/// The result of a comparison of replicas.
typedef struct tutti_verify_result {
  uint64_t bytes;                  ///< replicas and states that each rank compared
  uint64_t healed;                 ///< chunks of 64 KiB that differed, now equal
  uint64_t healed_since_creation;  ///< chunks healed since creation, by pushes too
} tutti_verify_result;

/// Compares all replicas and optimizer states between ranks. Where more than half of the ranks
/// agree, the others take over what these hold; a warning on standard error names rank, key and
/// elements. `result` may be NULL. Collective.
/// Errors  divergence: no majority; on all ranks, nothing has changed, and a load is possible.
TUTTI_API int tutti_kvstore_verify(tutti_kvstore* kv, tutti_verify_result* result);

/// The cost to this rank of the calls of one name, or of all calls, since the communicator was
/// made.
typedef struct tutti_call_totals {
  uint64_t calls;
  uint64_t bytes;  ///< this rank's values, summed over the calls
  double seconds;  ///< from the beginning to the end of the calls
  /// The part from this rank's announcement until it knew that every rank had announced the call.
  double waiting_seconds;
  int last_rank;             ///< the rank that was waited for longest; -1 if none was
  uint64_t last_rank_calls;  ///< calls in which it arrived last
  double last_rank_seconds;  ///< time that this rank waited in these calls
} tutti_call_totals;

/// The totals of the calls of a name: "push" (pushpull too), "pull", "allreduce" and so on; NULL is
/// all calls. A name that was not called has 0 calls. Calls are counted for a communicator, with
/// all its stores. Local.
TUTTI_API int tutti_kvstore_call_totals(const tutti_kvstore* kv, const char* call,
                                        tutti_call_totals* totals);
TUTTI_API int tutti_communicator_call_totals(const tutti_communicator* communicator,
                                             const char* call, tutti_call_totals* totals);

/// The statistics as a table for people, a line for each kind of call and list of keys, the 20 that
/// took longest. The text is valid until the next call for this handle or its end. Local.
TUTTI_API int tutti_kvstore_statistics(tutti_kvstore* kv, const char** text);
TUTTI_API int tutti_communicator_statistics(tutti_communicator* communicator, const char** text);

#ifdef __cplusplus
}
#endif

#endif
