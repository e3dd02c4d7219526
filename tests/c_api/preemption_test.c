// SPDX-License-Identifier: Apache-2.0
// A job that is asked to stop, by a signal or by a rank.
#include <signal.h>

#include "tests.h"

void test_signals(void) {
  tutti_preemption* signals = NULL;
  tutti_preemption* second = NULL;
  CHECK_OK(tutti_preemption_create(&signals));
  CHECK_ERROR(tutti_preemption_create(&second), TUTTI_ERROR_INVALID_ARGUMENT,
              "PreemptionSignals: this process has one already");
  CHECK(second == NULL);
  tutti_kvstore* kv = make_store("dist");
  int asked = 7;
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK_OK(tutti_kvstore_stop_requested(kv, &asked));
  CHECK(asked == 0);
  if (is_last()) raise(SIGUSR1);
  CHECK_OK(tutti_preemption_received(signals, &asked));
  CHECK(asked == is_last());
  CHECK_OK(tutti_kvstore_stop_requested(kv, &asked));
  CHECK(asked == 0);
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK_OK(tutti_kvstore_stop_requested(kv, &asked));
  CHECK(asked == 1);
  CHECK_OK(tutti_kvstore_destroy(kv));
  CHECK_OK(tutti_preemption_destroy(signals));
}

/// What a signal does that a program passes on: here, it calls a handler of the program's own.
static volatile sig_atomic_t seen = 0;
static void see(int signal) { seen = signal; }

void test_signals_passed_on(void) {
  void (*const before)(int) = signal(SIGTERM, see);
  tutti_preemption* signals = NULL;
  CHECK_OK(tutti_preemption_create(&signals));
  raise(SIGTERM);
  CHECK(seen == 0);
  CHECK_OK(tutti_preemption_pass_on(signals));
  CHECK(seen == SIGTERM);
  int received = 7;
  CHECK_OK(tutti_preemption_received(signals, &received));
  CHECK(received == 0);
  CHECK_OK(tutti_preemption_destroy(signals));
  signal(SIGTERM, before);
}

void test_requests_to_stop(void) {
  tutti_kvstore* kv = make_store("dist");
  int asked = 7;
  if (is_last()) CHECK_OK(tutti_kvstore_request_stop(kv));
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK_OK(tutti_kvstore_stop_requested(kv, &asked));
  CHECK(asked == 1);
  CHECK_OK(tutti_kvstore_destroy(kv));

  tutti_communicator* ranks = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &ranks));
  CHECK_OK(tutti_communicator_stop_requested(ranks, &asked));
  CHECK(asked == 0);
  if (is_last()) CHECK_OK(tutti_communicator_request_stop(ranks));
  CHECK_OK(tutti_communicator_barrier(ranks));
  CHECK_OK(tutti_communicator_stop_requested(ranks, &asked));
  CHECK(asked == 1);
  CHECK_OK(tutti_communicator_destroy(ranks));
}
