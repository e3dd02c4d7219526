// SPDX-License-Identifier: Apache-2.0
// Collectives without keys, over all ranks of the job or a group of them.
#ifndef TUTTI_C_COMMUNICATOR_H
#define TUTTI_C_COMMUNICATOR_H

#include "tutti/c/tensor.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Elementwise reductions. Integers wrap. min and max propagate NaN, and order -0 below +0. The
/// average is the sum, divided once by the number of ranks, of floating-point types alone.
enum { TUTTI_SUM = 0, TUTTI_PROD = 1, TUTTI_MIN = 2, TUTTI_MAX = 3, TUTTI_AVG = 4 };

/// A handle of the ranks of a job, or of a group of them.
typedef struct tutti_communicator tutti_communicator;

/// The place of this rank in the job and in its node.
typedef struct tutti_topology {
  int rank;
  int size;
  int node;  ///< index of this rank's node
  int num_nodes;
  int local_rank;  ///< rank within the node
  int local_size;
} tutti_topology;

/// All ranks of the job; a process that was not started by mpirun is a job of one rank. Initialises
/// MPI if the program has not. Collective.
///
/// `settings` is NULL for this process's TUTTI_* variables, or replaces them: a list of texts such
/// as "TUTTI_TIMEOUT=60" that ends with NULL. All ranks give the same ones.
/// Errors  invalid_argument: a setting that does not exist or cannot be read (on this rank alone),
///         or that differs between ranks (on all).
TUTTI_API int tutti_communicator_world(const char* const* settings,
                                       tutti_communicator** communicator);

/// This process alone. Never touches MPI. Local.
TUTTI_API int tutti_communicator_self(const char* const* settings,
                                      tutti_communicator** communicator);

/// The group of all ranks that give the same colour, numbered in the order of (key, rank). Groups
/// share the memory of the communicator that they come from, and may outlive it. Collective over
/// `communicator`; one thread of a process makes groups at a time. The caller destroys the group.
/// Errors  on all ranks, after which nothing has changed: out_of_memory, mismatch.
TUTTI_API int tutti_communicator_split(tutti_communicator* communicator, int color, int key,
                                       tutti_communicator** group);

/// The group of these `num_ranks` ranks of `communicator`, in this order; NULL on the others, which
/// take part in the call all the same. All ranks give the same list. Otherwise as split.
/// Errors  also invalid_argument: an empty list, a number that is no rank, a rank that is named
///         twice.
TUTTI_API int tutti_communicator_subgroup(tutti_communicator* communicator, const int* ranks,
                                          int num_ranks, tutti_communicator** group);

/// The group of tutti_communicator_subgroup, made by its ranks alone: no other rank takes part.
/// Collective over the `num_ranks` listed ranks, which give the same list.
/// Errors  invalid_argument, on this rank alone: as subgroup, or this rank is not listed. On all
///         listed ranks, after which nothing has changed: out_of_memory.
TUTTI_API int tutti_communicator_create_group(tutti_communicator* communicator, const int* ranks,
                                              int num_ranks, tutti_communicator** group);

/// This rank's rank in the job that a group comes from. Local.
TUTTI_API int tutti_communicator_job_rank(const tutti_communicator* communicator, int* rank);

/// Ends the handle, and the communicator if no store was created over it; NULL does nothing. Local:
/// other ranks learn of it if they call on, as communication.
TUTTI_API int tutti_communicator_destroy(tutti_communicator* communicator);

/// The ranks and nodes of the communicator. Local.
TUTTI_API int tutti_communicator_topology(const tutti_communicator* communicator,
                                          tutti_topology* topology);

/// The algorithms that carry this communicator's calls, as text, a line per case, each ending with
/// a newline. The text is valid until the communicator is destroyed. Local.
TUTTI_API int tutti_communicator_algorithms(tutti_communicator* communicator, const char** text);

/// A tensor in node-shared memory, all elements zero. The caller destroys it. Local.
/// Errors  out_of_memory, with what was asked and available.
TUTTI_API int tutti_communicator_allocate(tutti_communicator* communicator, const int64_t* shape,
                                          int ndim, int dtype, tutti_buffer** buffer);

/// Reduces `input` over all ranks into `output` on every rank. Collective. Both have the same shape
/// and dtype, and are the same memory or apart. The order of summation is the canonical tree over
/// ranks: the left operand is always the lower ranks, the left subtree the largest power of two
/// below the number of ranks.
TUTTI_API int tutti_communicator_allreduce(tutti_communicator* communicator,
                                           const tutti_tensor* input, const tutti_tensor* output,
                                           int op);

/// Reduces `input` over all ranks into `output` of rank `root`; elsewhere `output` is not touched
/// and may be NULL. Same order of summation. Collective.
TUTTI_API int tutti_communicator_reduce(tutti_communicator* communicator, const tutti_tensor* input,
                                        const tutti_tensor* output, int root, int op);

/// Reduces `input` over all ranks; rank r receives the r-th of size equal blocks in `output`.
/// Shape   `input` has size times the elements of `output`. Same order of summation. Collective.
TUTTI_API int tutti_communicator_reduce_scatter(tutti_communicator* communicator,
                                                const tutti_tensor* input,
                                                const tutti_tensor* output, int op);

/// Every rank receives the inputs of all ranks, one after the other in the order of ranks.
/// Shape   `output` has size times the elements of `input`. Collective.
TUTTI_API int tutti_communicator_allgather(tutti_communicator* communicator,
                                           const tutti_tensor* input, const tutti_tensor* output);

/// Copies `tensor` of rank `root` into `tensor` of every rank. Collective.
TUTTI_API int tutti_communicator_broadcast(tutti_communicator* communicator,
                                           const tutti_tensor* tensor, int root);

/// Returns when every rank has called it. Collective.
TUTTI_API int tutti_communicator_barrier(tutti_communicator* communicator);

/// One rank's failure becomes everybody's: if `status` is not TUTTI_OK on any rank, all return that
/// of the lowest such rank, with its `text` (the status's name if it is NULL). For work that may
/// fail on one rank alone, such as reading a file. Collective.
TUTTI_API int tutti_communicator_agree(tutti_communicator* communicator, int status,
                                       const char* text);

#ifdef __cplusplus
}
#endif

#endif
