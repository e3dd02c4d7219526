// SPDX-License-Identifier: Apache-2.0
// Stores as files, and a job that is asked to stop, by a signal or by a rank.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests.h"

enum { kPathBytes = 512 };

/// A path in the build folder that nobody else has, the same on all ranks: rank 0's number.
static void choose_path(char* path, const char* name) {
  tutti_kvstore* kv = make_store("dist");
  int64_t number = (int64_t)time(NULL) ^ (int64_t)(intptr_t)&number;
  const tutti_tensor tensor = {.data = &number, .dtype = TUTTI_INT64};
  const tutti_item item = item_of(0, &tensor, NULL);
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  snprintf(path, kPathBytes, "%s/%s-%llx", SCRATCH_FOLDER, name,
           *(const unsigned long long*)view.data);
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static void remove_checkpoint(tutti_kvstore* kv, const char* path) {
  static const char* const kParts[] = {"/generation-1/weights.safetensors",
                                       "/generation-1/optimizer.safetensors",
                                       "/generation-1/manifest.json", "/generation-1", ""};
  CHECK_OK(tutti_kvstore_barrier(kv));
  for (size_t i = 0; test_rank == 0 && i < sizeof kParts / sizeof *kParts; ++i) {
    char part[kPathBytes + 64];
    snprintf(part, sizeof part, "%s%s", path, kParts[i]);
    CHECK(remove(part) == 0);
  }
}

static tutti_kvstore* store_with_optimizer(void) {
  tutti_kvstore* kv = make_store("dist");
  tutti_optimizer* optimizer = NULL;
  CHECK_OK(tutti_optimizer_create("sgd,learning_rate=1,momentum=0.5", &optimizer));
  CHECK_OK(tutti_kvstore_set_optimizer(kv, optimizer));
  CHECK_OK(tutti_optimizer_destroy(optimizer));
  return kv;
}

void test_save_and_load(void) {
  char path[kPathBytes];
  choose_path(path, "checkpoint");
  tutti_kvstore* saved = store_with_optimizer();
  init_with(saved, 3, 100);
  push_all(saved, 3, 1);
  const tutti_metadata metadata[] = {{"epoch", "4"}, {"seed", "7"}};
  CHECK_OK(tutti_kvstore_save(saved, path, metadata, 2));

  tutti_kvstore* kv = store_with_optimizer();
  uint64_t generation = 0;
  const char* text = NULL;
  CHECK_OK(tutti_kvstore_load(kv, path, NULL, &generation));
  CHECK(generation == 1 && stores(kv, 3, 100 - test_size));
  CHECK_OK(tutti_kvstore_loaded_metadata(kv, "epoch", &text));
  CHECK(text != NULL && strcmp(text, "4") == 0);
  CHECK_OK(tutti_kvstore_loaded_metadata(kv, "step", &text));
  CHECK(text == NULL);
  CHECK_OK(tutti_kvstore_loaded_warnings(kv, &text));
  CHECK(strcmp(text, "") == 0);
  push_all(kv, 3, 1);  // with the momentum that was saved
  CHECK(stores(kv, 3, 100 - 2.5 * test_size));

  CHECK_OK(tutti_kvstore_snapshot(kv, path, metadata, 2));
  push_all(kv, 3, 1);
  CHECK_OK(tutti_kvstore_load(kv, path, NULL, NULL));
  CHECK(stores(kv, 3, 100 - 2.5 * test_size));
  int taken = 1;
  CHECK_OK(tutti_kvstore_snapshot_when_due(kv, path, NULL, 0, &taken));
  CHECK(taken == 0);  // no time was set
  char other_path[kPathBytes + 8];
  snprintf(other_path, sizeof other_path, "%s-async", path);
  tutti_pending* pending = NULL;
  CHECK_OK(tutti_kvstore_save_async(kv, other_path, NULL, 0, &pending));
  CHECK_OK(tutti_pending_wait(pending));
  CHECK_OK(tutti_pending_destroy(pending));
  remove_checkpoint(kv, other_path);

  tutti_kvstore* plain = make_store("dist");
  CHECK_ERROR(tutti_kvstore_load(plain, path, NULL, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "the checkpoint has an optimizer's states");
  const tutti_load_options weights = {.weights_only = 1};
  CHECK_OK(tutti_kvstore_load(plain, path, &weights, NULL));
  CHECK(stores(plain, 3, 100 - test_size));
  const tutti_load_options absent = {.may_be_absent = 1};
  CHECK_OK(tutti_kvstore_load(plain, SCRATCH_FOLDER "/nothing", &absent, &generation));
  CHECK(generation == 0);
  CHECK_ERROR(tutti_kvstore_load(plain, SCRATCH_FOLDER "/nothing", NULL, NULL), TUTTI_ERROR_IO,
              "there is no checkpoint in");
  remove_checkpoint(saved, path);
  CHECK_OK(tutti_kvstore_destroy(plain));
  CHECK_OK(tutti_kvstore_destroy(kv));
  CHECK_OK(tutti_kvstore_destroy(saved));
}

void test_optimizer_states(void) {
  char path[kPathBytes];
  choose_path(path, "states");
  tutti_kvstore* kv = store_with_optimizer();
  init_with(kv, 3, 0);
  push_all(kv, 3, 2);
  CHECK_OK(tutti_kvstore_save_optimizer_states(kv, path));
  tutti_kvstore* other = store_with_optimizer();
  init_with(other, 3, 0);
  CHECK_OK(tutti_kvstore_load_optimizer_states(other, path, NULL));
  push_all(other, 3, 0);
  CHECK(stores(other, 3, -test_size));  // half of the momentum
  tutti_kvstore* plain = make_store("dist");
  CHECK_ERROR(tutti_kvstore_save_optimizer_states(plain, path), TUTTI_ERROR_INVALID_ARGUMENT,
              "this store runs no optimizer");
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK(test_rank != 0 || remove(path) == 0);
  CHECK_OK(tutti_kvstore_destroy(plain));
  CHECK_OK(tutti_kvstore_destroy(other));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_bad_paths(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  const char* path = SCRATCH_FOLDER "/never";
  tutti_metadata metadata = {"epoch", NULL};
  if (!is_last()) metadata.text = "1";
  CHECK_ERROR(tutti_kvstore_save(kv, path, &metadata, 1), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_save: metadata[0].text: expected a pointer, got NULL");
  CHECK_ERROR(tutti_kvstore_save(kv, is_last() ? NULL : path, NULL, 0),
              TUTTI_ERROR_INVALID_ARGUMENT, "tutti_kvstore_save: directory");
  CHECK_ERROR(tutti_kvstore_load(kv, is_last() ? NULL : path, NULL, NULL),
              TUTTI_ERROR_INVALID_ARGUMENT, "tutti_kvstore_load: directory");
  CHECK_ERROR(tutti_kvstore_load_optimizer_states(kv, NULL, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "path: expected a pointer");
  CHECK(stores(kv, 3, 1));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

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
