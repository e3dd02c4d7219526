// SPDX-License-Identifier: Apache-2.0
// For C: a job that gets a signal to end saves itself first.
//
//     tutti_preemption_create(&signals);                      // the first thing that main does
//     while (training) {
//       tutti_kvstore_push(kv, items, num_items, 0);
//       tutti_kvstore_stop_requested(kv, &stop);              // the same answer on every rank
//       if (stop) break;
//     }
//     tutti_kvstore_save(kv, "run", NULL, 0);
//     return stop ? TUTTI_EXIT_REQUEUE : 0;
#ifndef TUTTI_C_PREEMPTION_H
#define TUTTI_C_PREEMPTION_H

#include "tutti/c/communicator.h"
#include "tutti/c/kvstore.h"
#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The exit code of a program that has saved itself because it was asked to stop: start it again.
/// (EX_TEMPFAIL; batch scripts requeue the job.)
enum { TUTTI_EXIT_REQUEUE = 75 };

/// A handle of the signals. From its making to its end, SIGTERM and SIGUSR1 do not end this
/// process: they ask the job to stop. A signal to one rank is enough: the request travels with that
/// rank's next collective call. A second signal, a second later or more, ends the process at once.
/// After SIGTERM all ranks must join the next call within TUTTI_GRACE; else it fails.
typedef struct tutti_preemption tutti_preemption;

/// Make it on every rank, as the first thing that the program does: until then a signal ends the
/// process, as ever. Local. Errors  invalid_argument: this process has one already.
TUTTI_API int tutti_preemption_create(tutti_preemption** signals);

/// The signals do again what they did before; their request is forgotten. NULL does nothing. Local.
TUTTI_API int tutti_preemption_destroy(tutti_preemption* signals);

/// For a program that learns from its options that it cannot save itself: from now on the process
/// behaves as if there had never been this object, which is still to be destroyed. A signal that
/// has come already comes again, and so usually ends the process. Local.
TUTTI_API int tutti_preemption_pass_on(tutti_preemption* signals);

/// 1 once a signal has come to this rank, else 0. Other ranks may not know of it. Local.
TUTTI_API int tutti_preemption_received(const tutti_preemption* signals, int* received);

/// 1 once a signal, or _request_stop, on any rank has asked the job to stop, else 0: the same on
/// all ranks after the same collective call. Ask it after each push. Local.
TUTTI_API int tutti_kvstore_stop_requested(const tutti_kvstore* kv, int* requested);
TUTTI_API int tutti_communicator_stop_requested(const tutti_communicator* communicator,
                                                int* requested);

/// Asks all ranks to stop; they know after the next collective call. Local.
TUTTI_API int tutti_kvstore_request_stop(tutti_kvstore* kv);
TUTTI_API int tutti_communicator_request_stop(tutti_communicator* communicator);

#ifdef __cplusplus
}
#endif

#endif
