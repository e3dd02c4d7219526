// SPDX-License-Identifier: Apache-2.0
// Row-sparse keys: tables of which a push changes some rows.
#ifndef TUTTI_C_ROW_SPARSE_H
#define TUTTI_C_ROW_SPARSE_H

#include "tutti/c/kvstore.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Row i of `rows` is, or is added to, row ids[i] of a table.
/// Shape   `ids` has n elements of an integer type, in any order and with repetitions; `rows` is
///         (n, ...), where ... are the table's dimensions but the first.
typedef struct tutti_rows {
  tutti_tensor ids;
  tutti_tensor rows;
} tutti_rows;

/// One key of a push of rows.
typedef struct tutti_rows_item {
  tutti_key key;
  const tutti_rows* values;  ///< summed by row
  int num_values;
} tutti_rows_item;

/// Stores tables under row-sparse keys, as tutti_kvstore_init does tensors. Collective.
TUTTI_API int tutti_kvstore_init_row_sparse(tutti_kvstore* kv, const tutti_item* items,
                                            int num_items);

/// A table of zeros, which takes no time or memory for its size. Collective.
/// Errors  invalid_argument: a key that exists, a scalar.
TUTTI_API int tutti_kvstore_init_row_sparse_zeros(tutti_kvstore* kv, const tutti_key* key,
                                                  const int64_t* shape, int ndim, int dtype);

/// Sums the union of the rows over values and ranks, then updates these rows: without an updater
/// the sums replace them; sgd, adam and adagrad update them alone. It moves and computes in
/// proportion to the rows. Ranks may push different rows, or none. Collective. Otherwise as
/// tutti_kvstore_push.
/// Errors  invalid_argument: ids that are no integers or no rows of the table, rows of another
///         shape or dtype, a dense key, an updater or optimizer that takes no rows.
TUTTI_API int tutti_kvstore_push_rows(tutti_kvstore* kv, const tutti_rows_item* items,
                                      int num_items, int priority);

/// Copies rows of this rank's replica: each that `row_ids` name once, ascending, into new buffers
/// of the host, `ids` of int64. The caller destroys both. Local.
/// Errors  invalid_argument: a dense key, ids that are no integers or no rows of the table.
TUTTI_API int tutti_kvstore_row_sparse_pull(tutti_kvstore* kv, const tutti_key* key,
                                            const tutti_tensor* row_ids, tutti_buffer** ids,
                                            tutti_buffer** rows);

/// The request of tutti_kvstore_row_sparse_pull_with. A device that is all zero is the host.
typedef struct tutti_row_pull {
  tutti_key key;
  tutti_tensor row_ids;
  int device_kind;   ///< device that the rows come to: TUTTI_CPU or TUTTI_GPU
  int device_index;  ///< at least 0
} tutti_row_pull;

/// tutti_kvstore_row_sparse_pull with the rows in new memory of a device: of a GPU they are there
/// in the order of its stream (tutti/c/gpu.h). `ids` stay on the host. Local.
/// Errors  those of tutti_kvstore_row_sparse_pull; invalid_argument: a device that is not here;
///         out_of_memory.
TUTTI_API int tutti_kvstore_row_sparse_pull_with(tutti_kvstore* kv, const tutti_row_pull* pull,
                                                 tutti_buffer** ids, tutti_buffer** rows);

/// An updater of row-sparse keys: `merged` has each pushed row once, ascending, and `stored` is the
/// whole table, of which it changes rows in place. For a table on a GPU, both sets of rows are in
/// that GPU's memory, and the ids are in host memory. Otherwise as tutti_updater.
typedef int (*tutti_row_updater)(void* user_data, const tutti_key* key, const tutti_rows* merged,
                                 const tutti_tensor* stored);

/// tutti_kvstore_set_updater with a second function for row-sparse keys.
/// Errors  invalid_argument: `rows` without `dense`.
TUTTI_API int tutti_kvstore_set_updaters(tutti_kvstore* kv, tutti_updater dense,
                                         tutti_row_updater rows, void* user_data);

#ifdef __cplusplus
}
#endif

#endif
