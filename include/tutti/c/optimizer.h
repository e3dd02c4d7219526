// SPDX-License-Identifier: Apache-2.0
// Optimizers of the C API: made from a string, run by a store (tutti_kvstore_set_optimizer).
#ifndef TUTTI_C_OPTIMIZER_H
#define TUTTI_C_OPTIMIZER_H

#include "tutti/c/key.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A handle of an optimizer. Nothing here is collective; but all ranks change their optimizers
/// alike, since a store compares them at its next push; a difference is an error on all ranks. A
/// call that changes an optimizer waits for the asynchronous pushes under way of the stores that
/// run it.
typedef struct tutti_optimizer tutti_optimizer;

/// Makes an optimizer from its name and options: "sgd,learning_rate=0.1,momentum=0.9",
/// "adam,schedule=cosine,max_update=10000". Names, options and defaults: tutti/optimizers.hpp.
/// Errors  invalid_argument: an unknown name or option, with the nearest and all known ones; an
///         option given twice; a value that is no number or out of its range.
TUTTI_API int tutti_optimizer_create(const char* text, tutti_optimizer** optimizer);

/// Ends the handle; NULL does nothing. A store that runs the optimizer goes on with it.
TUTTI_API int tutti_optimizer_destroy(tutti_optimizer* optimizer);

/// Sets the learning rate from the next push on.
/// Errors  invalid_argument: a value below 0, or a schedule decides the rate.
TUTTI_API int tutti_optimizer_set_learning_rate(tutti_optimizer* optimizer, double learning_rate);

/// Sets the schedule from the next push on, as "cosine,max_update=10000,warmup_steps=100". NULL or
/// "none" is none; the learning rate is then that before the schedule.
/// Errors  invalid_argument: an unknown name or option; a value that is no number or out of its
///         range; a warm-up that begins above the learning rate. The schedule is as it was.
TUTTI_API int tutti_optimizer_set_schedule(tutti_optimizer* optimizer, const char* schedule);

/// The learning rate before schedule and multipliers.
TUTTI_API int tutti_optimizer_learning_rate(const tutti_optimizer* optimizer,
                                            double* learning_rate);

/// Set the factors of one key's learning rate and weight decay, 1 unless set.
/// Errors  invalid_argument: a value that is not finite.
TUTTI_API int tutti_optimizer_set_lr_mult(tutti_optimizer* optimizer, const tutti_key* key,
                                          double factor);
TUTTI_API int tutti_optimizer_set_wd_mult(tutti_optimizer* optimizer, const tutti_key* key,
                                          double factor);

#ifdef __cplusplus
}
#endif

#endif
