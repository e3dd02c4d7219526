// SPDX-License-Identifier: Apache-2.0
// Calls that go on while the program computes, for C. Their guarantees, and their demands on MPI:
// include/README.md, "Pushes that go on while the program computes".
#ifndef TUTTI_C_PENDING_H
#define TUTTI_C_PENDING_H

#include "tutti/c/communicator.h"
#include "tutti/c/kvstore.h"
#include "tutti/c/tensor.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A handle of an asynchronous call of this rank. It may outlive its store or communicator. Any
/// thread may use it, and several at a time.
typedef struct tutti_pending tutti_pending;

/// How an asynchronous call treats its values, and when it is carried out. NULL means all zero.
typedef struct tutti_async_options {
  int priority;  ///< calls of a higher priority go first; equal on all ranks
  int borrow;    ///< not 0: values in ordinary memory are not copied, and stay as they are until
                 ///< the call is complete, as values from an _allocate always must
} tutti_async_options;

/// tutti_kvstore_push, returning at once. Ranks may push keys in any order; of each key, every rank
/// makes the same pushes. `options` may be NULL. The caller destroys `pending`.
/// Errors  invalid_argument: wrong arguments or an unknown key (on this rank alone), or an MPI that
///         allows no other thread; out_of_memory; the error that the store failed with.
///         tutti_pending_wait returns all others.
TUTTI_API int tutti_kvstore_push_async(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                       const tutti_async_options* options, tutti_pending** pending);

/// tutti_kvstore_pushpull, returning at once. The outputs are the store's until the call is
/// complete. If no item has an output, they are written over the values, which are borrowed.
/// Errors  as tutti_kvstore_push_async.
TUTTI_API int tutti_kvstore_pushpull_async(tutti_kvstore* kv, const tutti_item* items,
                                           int num_items, const tutti_async_options* options,
                                           tutti_pending** pending);

/// tutti_communicator_allreduce, returning at once. These calls are made in the same order on all
/// ranks. Both tensors are the library's until the call is complete; `borrow` has no effect.
/// Errors  as tutti_kvstore_push_async.
TUTTI_API int tutti_communicator_allreduce_async(tutti_communicator* communicator,
                                                 const tutti_tensor* input,
                                                 const tutti_tensor* output, int op,
                                                 const tutti_async_options* options,
                                                 tutti_pending** pending);

/// 1 once the call is complete or has failed, so that a wait returns at once; else 0. Local.
TUTTI_API int tutti_pending_ready(const tutti_pending* pending, int* ready);

/// Returns when the call is complete on this rank. Ranks may wait at different times.
/// Errors  the error of the call, at each wait, on all ranks alike; see Pending in pending.hpp.
TUTTI_API int tutti_pending_wait(const tutti_pending* pending);

/// Ends the handle, not the call: it goes on, and an error that nobody has waited for is a warning.
/// NULL does nothing. Local.
TUTTI_API int tutti_pending_destroy(tutti_pending* pending);

#ifdef __cplusplus
}
#endif

#endif
