// SPDX-License-Identifier: Apache-2.0
// The replicated key-value store for C.
#ifndef TUTTI_C_KVSTORE_H
#define TUTTI_C_KVSTORE_H

#include "tutti/c/communicator.h"
#include "tutti/c/key.h"
#include "tutti/c/optimizer.h"
#include "tutti/c/tensor.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A handle of a store. Every rank holds a replica of every value. A push sums over values and
/// ranks, then runs the updater on each rank's replica; a pull copies from this rank's replica.
typedef struct tutti_kvstore tutti_kvstore;

/// One key of a call, with its tensors. A call reads what it needs: init and push the values, pull
/// the outputs, pushpull and broadcast both. One array of items serves a whole training step.
///
/// A key that occurs in several items is one key with the tensors of all of them.
typedef struct tutti_item {
  tutti_key key;
  const tutti_tensor* values;  ///< summed first, for example over devices
  int num_values;
  const tutti_tensor* outputs;  ///< each receives the value
  int num_outputs;
} tutti_item;

/// Makes a store. Types: "local" and "device" are this process alone; "dist" is all ranks of the
/// job (aliases dist_sync, dist_device_sync, nccl). Upper and lower case are the same. Collective
/// for "dist". `settings` and their errors: tutti_communicator_world.
/// Errors  invalid_argument: an unknown type; the text lists the known ones (on this rank alone).
TUTTI_API int tutti_kvstore_create(const char* type, const char* const* settings,
                                   tutti_kvstore** kv);

/// A "dist" store over a communicator that exists already, and which it keeps. Local, but where a
/// store over it makes asynchronous pushes: see KVStore::create.
TUTTI_API int tutti_kvstore_create_over(const tutti_communicator* communicator, tutti_kvstore** kv);

/// Ends the store; NULL does nothing. Local: other ranks learn of it if they call on, as
/// communication. Errors  invalid_argument inside the store's own updater.
TUTTI_API int tutti_kvstore_destroy(tutti_kvstore* kv);

/// Stores the first value of each key: rank 0's value, whatever the other ranks hold. Once per key.
/// Collective. Errors  invalid_argument for a key that exists.
TUTTI_API int tutti_kvstore_init(tutti_kvstore* kv, const tutti_item* items, int num_items);

/// Sums each key's values over the list and over all ranks, then runs the updater; without one the
/// sum replaces the value. Collective; the items are one fused operation. Keys are updated in
/// ascending order (numbers) or in the order of their init (texts). On return the values may be
/// reused. `priority` counts with TUTTI_ASYNC=1: see push() in kvstore.hpp.
/// Errors  invalid_argument: an unknown key, another shape or dtype than the stored value's.
TUTTI_API int tutti_kvstore_push(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                 int priority);

/// Copies this rank's replica into every output of each key. Local.
/// Errors  invalid_argument: an unknown key, another shape, or another dtype unless `cast` is not
///         0: then elements are converted.
TUTTI_API int tutti_kvstore_pull(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                 int cast);

/// The options of a pull. All zero is tutti_kvstore_pull without `cast`.
typedef struct tutti_pull_options {
  int cast;          ///< not 0: elements are converted to the outputs' dtypes
  int whole_tables;  ///< not 0: outputs of row-sparse keys receive the table; else they are
                     ///< ignored, with a warning once per key
  int priority;      ///< accepted and has no effect: a pull sends no message
} tutti_pull_options;

/// tutti_kvstore_pull with options. Local.
TUTTI_API int tutti_kvstore_pull_with(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                      const tutti_pull_options* options);

/// A push, then a pull of the updated values into the outputs. If no item has an output, they are
/// written over the values. Collective. Errors  as push and pull.
TUTTI_API int tutti_kvstore_pushpull(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                     int priority);

/// An init, then a pull. Collective.
TUTTI_API int tutti_kvstore_broadcast(tutti_kvstore* kv, const tutti_item* items, int num_items);

/// This rank's replica, without a copy, to be read only. Data and shape are valid until the store
/// is destroyed, the content until the next push of the key. Local.
/// Errors  invalid_argument: an unknown key.
TUTTI_API int tutti_kvstore_view(tutti_kvstore* kv, const tutti_key* key, tutti_tensor* view);

/// A tensor in the store's memory, pushed without any copy; all elements zero. The caller destroys
/// it. Local. Errors  out_of_memory, with what was asked and available.
TUTTI_API int tutti_kvstore_allocate(tutti_kvstore* kv, const int64_t* shape, int ndim, int dtype,
                                     tutti_buffer** buffer);

/// A rule of update of the program's own. Called once per distinct key of a push: `merged`, which
/// is read only, is the sum over values and ranks; `stored` is changed in place. Runs on every rank
/// on equal data, and must do the same on all. It may pull and view; a collective call inside it is
/// an error. Key and tensors are valid until it returns. Returns 0. Anything else fails the store
/// for good: the push returns user_code, and the other ranks learn of it at their next collective
/// call at the latest.
typedef int (*tutti_updater)(void* user_data, const tutti_key* key, const tutti_tensor* merged,
                             const tutti_tensor* stored);

/// Replaces the updater; NULL is none. Nothing stored changes until the next push. `user_data` is
/// passed on, and lives as long as the updater is set. Call it on every rank.
TUTTI_API int tutti_kvstore_set_updater(tutti_kvstore* kv, tutti_updater updater, void* user_data);

/// Makes the store run an optimizer as its updater, with new state. Call it on every rank.
TUTTI_API int tutti_kvstore_set_optimizer(tutti_kvstore* kv, const tutti_optimizer* optimizer);

/// The account of the gradients of a store whose optimizer has the option clip_global_norm or
/// loss_scale; the same on all ranks after the same pushes. See tutti/scaling.hpp.
typedef struct tutti_gradient_scaling {
  double loss_scale;     ///< factor for the loss of the next push: 1 without loss_scale
  uint64_t good_pushes;  ///< finite pushes in a row since a dynamic scale changed last
  uint64_t skipped;      ///< pushes whose gradients were not finite, and which updated nothing
  double norm;           ///< norm of the last push, as clip_global_norm compares it
  int was_skipped;       ///< 1 if the last push updated nothing
} tutti_gradient_scaling;

/// The account of the gradients of the last push. Local.
TUTTI_API int tutti_kvstore_gradient_scaling(const tutti_kvstore* kv,
                                             tutti_gradient_scaling* scaling);

/// Compresses the data that later pushes send: "2bit,threshold=0.5", "none". Names and options are
/// those of tutti/compression.hpp. All residuals start at zero again. Call it on every rank.
/// Errors  invalid_argument: an unknown name or option, a value out of its range (on this rank
///         alone). A push that is compressed otherwise on another rank is an error on all.
TUTTI_API int tutti_kvstore_set_gradient_compression(tutti_kvstore* kv, const char* compression);

/// Returns when every rank has called it. Collective.
TUTTI_API int tutti_kvstore_barrier(tutti_kvstore* kv);

/// One rank's failure becomes everybody's: see tutti_communicator_agree. Collective.
TUTTI_API int tutti_kvstore_agree(tutti_kvstore* kv, int status, const char* text);

/// Rank, number of ranks, and type; also of a failed store. Local. The type is the name that it was
/// created with, aliases resolved, and valid until the store is destroyed.
TUTTI_API int tutti_kvstore_rank(const tutti_kvstore* kv, int* rank);
TUTTI_API int tutti_kvstore_num_workers(const tutti_kvstore* kv, int* num_workers);
TUTTI_API int tutti_kvstore_type(const tutti_kvstore* kv, const char** type);

/// 1 for "optimizer": the store can run one, so workers need not. 0 for anything else. Local.
TUTTI_API int tutti_kvstore_is_capable(const tutti_kvstore* kv, const char* capability,
                                       int* capable);

#ifdef __cplusplus
}
#endif

#endif
