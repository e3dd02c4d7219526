// SPDX-License-Identifier: Apache-2.0
// Checkpoints of stores. Their contents and guarantees: KVStore::save in tutti/kvstore.hpp.
#ifndef TUTTI_C_CHECKPOINT_H
#define TUTTI_C_CHECKPOINT_H

#include "tutti/c/kvstore.h"
#include "tutti/c/pending.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A text that a program saves with a store, such as epoch, position or seed. Name and text are
/// UTF-8 and end with a 0 byte.
typedef struct tutti_metadata {
  const char* name;
  const char* text;
} tutti_metadata;

/// The options of a load. All zero is the default.
typedef struct tutti_load_options {
  int weights_only;   ///< takes the values alone, whatever updated them
  int other_options;  ///< takes the states of an optimizer of the same name with other options
  int may_be_absent;  ///< where there is no checkpoint, nothing happens; else it is an error
} tutti_load_options;

/// Saves values, the optimizer's states and counts, residuals and metadata as a new generation in a
/// directory, and keeps the one before. Whenever the process or the machine stops, a load finds the
/// one or the other, whole. Collective.
/// Errors  io, mismatch if ranks save to different directories, invalid_argument for a text that is
///         not UTF-8. Older generations stay, and the store goes on.
TUTTI_API int tutti_kvstore_save(tutti_kvstore* kv, const char* directory,
                                 const tutti_metadata* metadata, int num_metadata);

/// Copies what a save writes into the memory of every node, where a load finds it; see
/// tutti/snapshot.hpp.
/// Collective.
TUTTI_API int tutti_kvstore_snapshot(tutti_kvstore* kv, const char* directory,
                                     const tutti_metadata* metadata, int num_metadata);
/// A snapshot if TUTTI_SNAPSHOT_EVERY has passed; `taken`, which may be NULL, says whether it was
/// taken. Collective.
TUTTI_API int tutti_kvstore_snapshot_when_due(tutti_kvstore* kv, const char* directory,
                                              const tutti_metadata* metadata, int num_metadata,
                                              int* taken);
/// A snapshot that a thread of rank 0 then copies to the disk; there `pending` is complete when the
/// generation is there for good, on other ranks at once. It may be NULL; the caller destroys it.
/// Collective. Errors  as tutti_kvstore_save, at the wait on rank 0 and at the next call that saves
///         or loads on all ranks.
TUTTI_API int tutti_kvstore_save_async(tutti_kvstore* kv, const char* directory,
                                       const tutti_metadata* metadata, int num_metadata,
                                       tutti_pending** pending);

/// Takes back the newest generation that is not damaged, into any type of store with any number of
/// ranks. Optimizer and compression are set before. `options` may be NULL. `generation`, which may
/// be NULL, becomes 0 if there was no checkpoint. Collective.
/// Errors  io: no checkpoint, no permission, a later format; corrupt_file: every generation is
///         damaged; invalid_argument: other keys or another optimizer. Nothing has changed then.
TUTTI_API int tutti_kvstore_load(tutti_kvstore* kv, const char* directory,
                                 const tutti_load_options* options, uint64_t* generation);

/// A text that was saved with the store that the handle loaded last; NULL if there is none of this
/// name. Valid until the next load. Local.
TUTTI_API int tutti_kvstore_loaded_metadata(const tutti_kvstore* kv, const char* name,
                                            const char** text);

/// The warnings of the last load: generations that are damaged and were passed over, residuals that
/// begin at zero; a sentence per line, or an empty text. Valid until the next load. Local.
TUTTI_API int tutti_kvstore_loaded_warnings(const tutti_kvstore* kv, const char** text);

/// Save and load the optimizer's states and counts alone, in one file, which is replaced in one
/// step. The store must hold the same keys when it loads; of the options, other_options counts.
/// Collective.
/// Errors  as for a whole store; invalid_argument without an optimizer.
TUTTI_API int tutti_kvstore_save_optimizer_states(tutti_kvstore* kv, const char* path);
TUTTI_API int tutti_kvstore_load_optimizer_states(tutti_kvstore* kv, const char* path,
                                                  const tutti_load_options* options);

#ifdef __cplusplus
}
#endif

#endif
