// SPDX-License-Identifier: Apache-2.0
// Errors of the library as a program in C sees them.
#include <stdint.h>
#include <string.h>
#include <threads.h>

#include "tests.h"

void test_errors_of_the_library(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  init_with(kv, 5, 1);
  float cells[kCells];
  const tutti_tensor value = filled(cells, 1);
  tutti_item item = item_of(3, &value, NULL);
  CHECK_ERROR(tutti_kvstore_init(kv, &item, 1), TUTTI_ERROR_INVALID_ARGUMENT, "init: key 3",
              "exists already");
  if (is_last()) item.key.number = 5;
  if (test_size > 1) {
    CHECK_ERROR(tutti_kvstore_push(kv, &item, 1, 0), TUTTI_ERROR_MISMATCH, "ranks disagree",
                "key 3", "key 5");
    CHECK(tutti_last_error_is_recoverable());
  }
  const int64_t shape[] = {6};
  tutti_tensor other = value;
  other.shape = shape;
  other.ndim = 1;
  item = item_of(3, &other, &other);
  CHECK_ERROR(tutti_kvstore_push(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "push: key 3 (2, 3) float32: a value has shape (6), expected (2, 3)");
  CHECK_ERROR(tutti_kvstore_pull(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "pull: key 3 (2, 3) float32: an output has shape (6), expected (2, 3)");

  const int64_t huge = INT64_C(1) << 50;
  tutti_buffer* buffer = NULL;
  CHECK_ERROR(tutti_kvstore_allocate(kv, &huge, 1, TUTTI_FLOAT64, &buffer),
              TUTTI_ERROR_OUT_OF_MEMORY, "memory");
  CHECK(buffer == NULL && tutti_last_error_is_recoverable());
  push_all(kv, 3, 2);
  CHECK(stores(kv, 3, 2 * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_agree(void) {
  tutti_kvstore* kv = make_store("dist");
  tutti_communicator* world = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  const int status = is_last() ? TUTTI_ERROR_IO : TUTTI_OK;
  CHECK_OK(tutti_kvstore_agree(kv, TUTTI_OK, NULL));
  CHECK_ERROR(tutti_kvstore_agree(kv, status, "no data.bin"), TUTTI_ERROR_IO, "no data.bin");
  CHECK_ERROR(tutti_communicator_agree(world, 7 * is_last(), "cut off"), TUTTI_ERROR_CORRUPT_FILE,
              "cut off");
  CHECK_ERROR(tutti_communicator_agree(world, status, NULL), TUTTI_ERROR_IO, "rank ", ": io");
  CHECK_ERROR(tutti_communicator_agree(world, 10 * is_last(), "?"), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_communicator_agree: status: expected 0 to 9, got 10");
  CHECK(tutti_last_error_is_recoverable());
  CHECK_OK(tutti_communicator_agree(world, TUTTI_OK, NULL));
  CHECK_OK(tutti_communicator_destroy(world));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static int fail_in_another_thread(void* unused) {
  (void)unused;
  tutti_optimizer* optimizer = NULL;
  CHECK(strcmp(tutti_last_error(), "") == 0);
  CHECK(tutti_optimizer_create("magic", &optimizer) == TUTTI_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(tutti_last_error(), "magic") != NULL);
  return 0;
}

void test_last_error(void) {
  CHECK_ERROR(tutti_kvstore_barrier(NULL), TUTTI_ERROR_INVALID_ARGUMENT, "tutti_kvstore_barrier");
  thrd_t thread;
  CHECK(thrd_create(&thread, fail_in_another_thread, NULL) == thrd_success);
  CHECK(thrd_join(thread, NULL) == thrd_success);
  CHECK_OK(tutti_kvstore_destroy(NULL));  // a success leaves it
  CHECK(strstr(tutti_last_error(), "tutti_kvstore_barrier: kv: expected a tutti_kvstore") != NULL);

  static const char* const kNames[] = {"ok",       "invalid_argument", "mismatch", "communication",
                                       "timeout",  "out_of_memory",    "io",       "corrupt_file",
                                       "user_code"};
  static const int kExitCodes[] = {0, 1, 2, 2, 4, 2, 2, 2, 2};
  for (int status = TUTTI_OK; status <= TUTTI_ERROR_USER_CODE; ++status) {
    CHECK(strcmp(tutti_status_name(status), kNames[status]) == 0);
    CHECK(tutti_exit_code(status) == kExitCodes[status]);
  }
  CHECK(strcmp(tutti_status_name(99), "unknown") == 0 && tutti_exit_code(99) == 2);
  CHECK(strcmp(tutti_version(), EXPECTED_VERSION) == 0);
}
