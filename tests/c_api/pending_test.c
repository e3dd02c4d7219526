// SPDX-License-Identifier: Apache-2.0
// Calls that go on while the program computes, and what is wrong with them.
#include <stdio.h>
#include <threads.h>

#include "tests.h"

enum { kKeys = 5 };

static const tutti_async_options kBorrow = {.priority = 2, .borrow = 1};

static void check_complete(tutti_pending* pending) {
  int ready = 7;
  CHECK_OK(tutti_pending_wait(pending));
  CHECK_OK(tutti_pending_wait(pending));
  CHECK_OK(tutti_pending_ready(pending, &ready));
  CHECK(ready == 1);
  CHECK_OK(tutti_pending_destroy(pending));
}

static int wait_for(void* pending) { return tutti_pending_wait(pending); }

void test_pending(void) {
  static const char* const kTypes[] = {"local", "dist"};
  for (int t = 0; t < 2; ++t) {
    tutti_kvstore* kv = make_store(kTypes[t]);
    const int ranks = t == 0 ? 1 : test_size;
    for (int key = 0; key < kKeys; ++key) init_with(kv, key, 0);
    tutti_pending* pending[kKeys] = {NULL};
    for (int i = 0; i < kKeys; ++i) {  // each rank in an order of its own
      const int key = (i + test_rank) % kKeys;
      float cells[kCells];
      const tutti_tensor value = filled(cells, (float)key + 1);
      const tutti_item item = item_of(key, &value, NULL);
      const tutti_async_options options = {.priority = -key};
      CHECK_OK(tutti_kvstore_push_async(kv, &item, 1, i == 0 ? NULL : &options, &pending[key]));
      filled(cells, 99);  // it was copied
    }
    for (int key = 0; key < kKeys; ++key) CHECK(stores(kv, key, (key + 1) * ranks));
    thrd_t waiter;
    CHECK(thrd_create(&waiter, wait_for, pending[0]) == thrd_success);
    int waited = -1;
    CHECK(thrd_join(waiter, &waited) == thrd_success && waited == TUTTI_OK);
    for (int key = 0; key < kKeys; ++key) check_complete(pending[key]);
    CHECK_OK(tutti_kvstore_destroy(kv));
  }
}

void test_pending_outputs(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 0);
  float cells[2][kCells];
  const tutti_tensor value = filled(cells[0], 2);
  const tutti_tensor output = filled(cells[1], 0);
  tutti_item item = item_of(3, &value, &output);
  tutti_pending* pending = NULL;
  CHECK_OK(tutti_kvstore_pushpull_async(kv, &item, 1, &kBorrow, &pending));
  check_complete(pending);
  CHECK(all_are(cells[1], 2 * test_size));
  CHECK(all_are(cells[0], 2));
  item.num_outputs = 0;
  CHECK_OK(tutti_kvstore_pushpull_async(kv, &item, 1, NULL, &pending));  // over the values
  check_complete(pending);
  CHECK(all_are(cells[0], 2 * test_size));
  CHECK_OK(tutti_kvstore_push_async(kv, &item, 1, NULL, &pending));
  CHECK_OK(tutti_pending_destroy(pending));  // which goes on
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK(stores(kv, 3, 2 * test_size * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));

  tutti_communicator* world = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  const tutti_tensor tensor = filled(cells[0], (float)test_rank);
  CHECK_OK(tutti_communicator_allreduce_async(world, &tensor, &output, TUTTI_MAX, NULL, &pending));
  check_complete(pending);
  CHECK(all_are(cells[1], test_size - 1));
  CHECK_OK(tutti_pending_destroy(NULL));
  CHECK_OK(tutti_communicator_destroy(world));
}

void test_pending_errors(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 0);
  float cells[kCells + 1] = {0};
  const int64_t other[] = {kCells + 1};
  const tutti_tensor value = filled(cells, 1);
  tutti_tensor wrong = value;
  if (is_last()) {
    wrong.shape = other;
    wrong.ndim = 1;
  }
  char name[32];
  snprintf(name, sizeof name, "rank %d", test_size - 1);
  tutti_item item = item_of(3, &wrong, NULL);
  tutti_pending* pending = NULL;
  CHECK_OK(tutti_kvstore_push_async(kv, &item, 1, NULL, &pending));
  for (int i = 0; i < 2; ++i) {
    CHECK_ERROR(tutti_pending_wait(pending), TUTTI_ERROR_INVALID_ARGUMENT, name, "push_async",
                "key 3");
    CHECK(tutti_last_error_is_recoverable());
  }
  CHECK_OK(tutti_pending_destroy(pending));

  // What is wrong on this rank alone is an error at once, and the pointer as it was.
  pending = NULL;
  item = item_of(3, &value, NULL);
  CHECK_ERROR(tutti_kvstore_push_async(kv, NULL, 1, NULL, &pending), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_push_async: items: expected a list of 1, got NULL");
  CHECK_ERROR(tutti_kvstore_push_async(kv, &item, 1, NULL, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_push_async: pending: expected a pointer, got NULL");
  CHECK_ERROR(tutti_kvstore_pushpull_async(kv, &item, -1, NULL, &pending),
              TUTTI_ERROR_INVALID_ARGUMENT, "tutti_kvstore_pushpull_async: items", "got -1");
  item.key.number = 4;
  CHECK_ERROR(tutti_kvstore_push_async(kv, &item, 1, NULL, &pending), TUTTI_ERROR_INVALID_ARGUMENT,
              "key 4", "unknown");
  CHECK(pending == NULL);
  push_all(kv, 3, 2);
  CHECK(stores(kv, 3, 2 * test_size));
  CHECK_ERROR(tutti_pending_wait((tutti_pending*)(void*)kv), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_pending_wait: pending: expected a tutti_pending, got a tutti_kvstore");
  CHECK_OK(tutti_kvstore_destroy(kv));

  tutti_communicator* self = NULL;
  CHECK_OK(tutti_communicator_self(test_settings, &self));
  CHECK_ERROR(tutti_communicator_allreduce_async(self, NULL, &value, TUTTI_SUM, NULL, &pending),
              TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_communicator_allreduce_async: input: expected a pointer, got NULL");
  CHECK_ERROR(tutti_communicator_allreduce_async(self, &value, &value, 9, NULL, &pending),
              TUTTI_ERROR_INVALID_ARGUMENT, "tutti_communicator_allreduce_async: op", "got 9");
  CHECK_OK(tutti_communicator_allreduce_async(self, &value, &value, TUTTI_SUM, NULL, &pending));
  CHECK_ERROR(tutti_pending_ready(pending, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_pending_ready: ready: expected a pointer, got NULL");
  check_complete(pending);
  CHECK_OK(tutti_communicator_destroy(self));
}
