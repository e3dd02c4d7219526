// SPDX-License-Identifier: Apache-2.0
// Collectives in which each rank has a block of its own, operations of the program's own, and
// messages between two ranks.
#ifndef TUTTI_C_BLOCKS_H
#define TUTTI_C_BLOCKS_H

#include "tutti/c/communicator.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

// Lists of counts have one number of elements for each rank, in the order of ranks.

/// Rank `root` receives the inputs of all ranks, one after the other in the order of ranks.
/// Shape   `output` of `root` has size times the elements of `input`; elsewhere it is not touched
///         and may be NULL. Collective.
TUTTI_API int tutti_communicator_gather(tutti_communicator* communicator, const tutti_tensor* input,
                                        const tutti_tensor* output, int root);

/// Rank r receives the r-th of size equal blocks of `input` of rank `root`.
/// Shape   `input` of `root` has size times the elements of `output`; elsewhere it is not read and
///         may be NULL. Collective.
TUTTI_API int tutti_communicator_scatter(tutti_communicator* communicator,
                                         const tutti_tensor* input, const tutti_tensor* output,
                                         int root);

/// The `count` of every rank, in the order of ranks, in `counts`, which has room for size numbers.
/// Collective.
TUTTI_API int tutti_communicator_exchange_counts(tutti_communicator* communicator, int64_t count,
                                                 int64_t* counts);

/// Every rank receives the inputs of all ranks, of counts[r] elements on rank r. All ranks give the
/// same counts, which add up to the elements of `output`; or all give NULL: then they are exchanged
/// first. Collective.
TUTTI_API int tutti_communicator_allgatherv(tutti_communicator* communicator,
                                            const tutti_tensor* input, const tutti_tensor* output,
                                            const int64_t* counts);

/// Reduces `input` over all ranks; rank r receives a block of counts[r] elements in `output`. All
/// ranks give the same counts, which add up to the elements of `input`. Collective.
TUTTI_API int tutti_communicator_reduce_scatterv(tutti_communicator* communicator,
                                                 const tutti_tensor* input,
                                                 const tutti_tensor* output, const int64_t* counts,
                                                 int op);

/// Rank r receives the r-th of size equal blocks of every rank, in the order of ranks. `input` and
/// `output` are apart. Collective.
TUTTI_API int tutti_communicator_alltoall(tutti_communicator* communicator,
                                          const tutti_tensor* input, const tutti_tensor* output);

/// An alltoall with blocks of any sizes: input_counts[r] elements go to rank r, and
/// output_counts[r] come from it. Collective.
/// Errors  invalid_argument, on all ranks: one rank gives another count than another expects.
TUTTI_API int tutti_communicator_alltoallv(tutti_communicator* communicator,
                                           const tutti_tensor* input, const int64_t* input_counts,
                                           const tutti_tensor* output,
                                           const int64_t* output_counts);

/// A message to another rank, which receives it; no other rank takes part. Returns when it has been
/// received; a small one may be left as a copy, and then this rank's next call of the communicator
/// waits for that first. Messages from one rank to another arrive in the order of their sends.
/// Errors  invalid_argument, on this rank alone; mismatch, on both ranks: another count or dtype.
///         Where a copy was left, the sender's next call returns this, and is not made.
TUTTI_API int tutti_communicator_send(tutti_communicator* communicator, const tutti_tensor* tensor,
                                      int to_rank);
TUTTI_API int tutti_communicator_receive(tutti_communicator* communicator,
                                         const tutti_tensor* tensor, int from_rank);

/// `left` becomes left (op) right. Both have one shape and dtype. Returns 0, or anything else for a
/// failure, which all ranks then get as user_code. It makes no calls of the communicator.
typedef int (*tutti_combine)(void* user_data, const tutti_tensor* left, const tutti_tensor* right);

/// An operation of the program's own. It need not be commutative: its left operand is always the
/// lower ranks.
typedef struct tutti_user_op {
  const char* name;  ///< for messages; the same on all ranks
  tutti_combine combine;
  void* user_data;  ///< passed on to combine
  /// 1: elements are combined one by one, and `combine` gets one-dimensional parts of any length,
  /// on all ranks. 0: it gets whole tensors, on one rank.
  int elementwise;
} tutti_user_op;

/// tutti_communicator_allreduce, reduce and reduce_scatter by such an operation. Collective.
/// Errors  user_code, on all ranks: the operation failed; nothing was changed.
TUTTI_API int tutti_communicator_allreduce_by(tutti_communicator* communicator,
                                              const tutti_tensor* input, const tutti_tensor* output,
                                              const tutti_user_op* op);
TUTTI_API int tutti_communicator_reduce_by(tutti_communicator* communicator,
                                           const tutti_tensor* input, const tutti_tensor* output,
                                           int root, const tutti_user_op* op);
TUTTI_API int tutti_communicator_reduce_scatter_by(tutti_communicator* communicator,
                                                   const tutti_tensor* input,
                                                   const tutti_tensor* output,
                                                   const tutti_user_op* op);

#ifdef __cplusplus
}
#endif

#endif
