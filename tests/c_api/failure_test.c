// SPDX-License-Identifier: Apache-2.0
// What fails a store for good: an updater that returns no 0, a rank that leaves, a deadline.
#include <stdint.h>
#include <stdio.h>

#include "tests.h"

static int return_given(void* user_data, const tutti_key* key, const tutti_tensor* merged,
                        const tutti_tensor* stored) {
  (void)key, (void)merged, (void)stored;
  return *(const int*)user_data;
}

// Every call but the local questions and destroy returns `status` now.
static void check_failed(tutti_kvstore* kv, int status, const char* word) {
  tutti_tensor view = {0};
  int rank = -1;
  CHECK(!tutti_last_error_is_recoverable());
  CHECK_ERROR(tutti_kvstore_barrier(kv), status, word);
  CHECK_ERROR(tutti_kvstore_push(kv, NULL, 1, 0), status, word);
  CHECK_ERROR(tutti_kvstore_view(kv, &(tutti_key){.number = 3}, &view), status, word);
  CHECK(!tutti_last_error_is_recoverable());
  CHECK_OK(tutti_kvstore_rank(kv, &rank));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static int push_and_meet(tutti_kvstore* kv) {
  float cells[kCells];
  const tutti_tensor value = filled(cells, 1);
  const tutti_item item = item_of(3, &value, NULL);
  const int status = tutti_kvstore_push(kv, &item, 1, 0);
  return status == TUTTI_OK ? tutti_kvstore_barrier(kv) : status;
}

static void test_updater_that_fails(void) {
  int returned = is_last() ? -5 : 0;
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  CHECK_OK(tutti_kvstore_set_updater(kv, return_given, &returned));
  if (is_last()) {
    CHECK_ERROR(push_and_meet(kv), TUTTI_ERROR_USER_CODE,
                "the updater of key 3 threw: expected it to return 0, got -5");
    CHECK(tutti_last_error_is_reporter());
  } else {
    CHECK_ERROR(push_and_meet(kv), TUTTI_ERROR_USER_CODE, "rank ", "the updater of key 3",
                "got -5");
  }
  check_failed(kv, TUTTI_ERROR_USER_CODE, "got -5");

  returned = 1;
  kv = make_store("local");
  init_with(kv, 3, 1);
  CHECK_OK(tutti_kvstore_set_updater(kv, return_given, &returned));
  CHECK_ERROR(push_and_meet(kv), TUTTI_ERROR_USER_CODE, "got 1");
  check_failed(kv, TUTTI_ERROR_USER_CODE, "got 1");
}

static void test_rank_that_leaves(void) {
  if (test_size == 1) return;
  tutti_communicator* world = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  CHECK_OK(tutti_communicator_barrier(world));  // all have done their init
  if (is_last()) {
    CHECK_OK(tutti_kvstore_destroy(kv));
  } else {
    CHECK_ERROR(tutti_kvstore_barrier(kv), TUTTI_ERROR_COMMUNICATION, "rank ");
    check_failed(kv, TUTTI_ERROR_COMMUNICATION, "rank ");
  }
  CHECK_OK(tutti_communicator_destroy(world));
}

static void test_deadline(void) {
  if (test_size == 1) return;
  // Creation has the deadline, too: no rank that is there misses it on a busy machine.
  static const char* const kSettings[] = {"TUTTI_TIMEOUT=4", "TUTTI_LOG=quiet", NULL};
  char missing[32];
  snprintf(missing, sizeof missing, "rank %d", test_size - 1);
  tutti_communicator* world = NULL;
  tutti_kvstore* kv = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  CHECK_OK(tutti_kvstore_create("dist", kSettings, &kv));
  if (!is_last()) CHECK_ERROR(tutti_kvstore_barrier(kv), TUTTI_ERROR_TIMEOUT, "barrier", missing);
  CHECK_OK(tutti_communicator_barrier(world));
  if (is_last()) CHECK_ERROR(tutti_kvstore_barrier(kv), TUTTI_ERROR_TIMEOUT, "barrier");
  check_failed(kv, TUTTI_ERROR_TIMEOUT, "barrier");
  CHECK_OK(tutti_communicator_destroy(world));
}

int main(void) {
  static const test_case kTests[] = {
      {"an updater that returns no 0 fails its store, on every rank", test_updater_that_fails},
      {"a rank that leaves is a communication error of the others", test_rank_that_leaves},
      {"a rank that is missing is a timeout of the others", test_deadline},
  };
  return run_tests(kTests, sizeof kTests / sizeof *kTests);
}
