// SPDX-License-Identifier: Apache-2.0
// Keys, verification, statistics, and a schedule that is set later.
#include <stdio.h>
#include <string.h>

#include "tests.h"

void test_keys(void) {
  tutti_kvstore* kv = make_store("dist");
  const tutti_key* keys = NULL;
  int count = -1;
  CHECK_OK(tutti_kvstore_keys(kv, &keys, &count));
  CHECK(count == 0);
  init_with(kv, 7, 0);
  init_with(kv, -3, 0);
  CHECK_OK(tutti_kvstore_keys(kv, &keys, &count));
  CHECK(count == 2 && keys[0].number == -3 && keys[1].number == 7 && keys[0].text == NULL);
  CHECK_OK(tutti_kvstore_destroy(kv));

  kv = make_store("dist");
  float cells[kCells];
  const tutti_tensor value = filled(cells, 1);
  char text[] = "a name of the caller's that is longer than any short string";
  tutti_item item = item_of(0, &value, NULL);
  item.key.text = text;
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  text[0] = 'x';
  CHECK_OK(tutti_kvstore_keys(kv, &keys, &count));
  CHECK(count == 1 && keys[0].text != text && keys[0].text[0] == 'a');
  CHECK_ERROR(tutti_kvstore_keys(kv, NULL, &count), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_keys: keys: expected a pointer, got NULL");
  CHECK_ERROR(tutti_kvstore_keys(kv, &keys, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "num_keys");
  CHECK_OK(tutti_kvstore_destroy(kv));
}

// Another value on the last rank: two ranks cannot tell who is right, from three on a majority can.
void test_verify(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 5);
  tutti_verify_result found = {0};
  CHECK_OK(tutti_kvstore_verify(kv, &found));
  CHECK(found.healed == 0 && found.bytes == kCells * sizeof(float));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &(tutti_key){.number = 3}, &view));
  if (is_last()) ((float*)view.data)[4] = 6;
  CHECK_OK(tutti_kvstore_barrier(kv));
  if (test_size == 2) {
    CHECK_ERROR(tutti_kvstore_verify(kv, NULL), TUTTI_ERROR_DIVERGENCE, "key 3");
  } else {
    CHECK_OK(tutti_kvstore_verify(kv, &found));
    CHECK(found.healed == (test_size > 1) && found.healed_since_creation == found.healed);
    CHECK(test_size == 1 || stores(kv, 3, 5));
  }
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_statistics(void) {
  tutti_communicator* world = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  tutti_kvstore* kv = NULL;
  CHECK_OK(tutti_kvstore_create_over(world, &kv));
  tutti_call_totals totals = {.calls = 77};
  CHECK_OK(tutti_kvstore_call_totals(kv, "push", &totals));
  CHECK(totals.calls == 0 && totals.bytes == 0 && totals.last_rank == -1);
  init_with(kv, 3, 0);
  for (int i = 0; i < 4; ++i) push_all(kv, 3, 1);
  CHECK_OK(tutti_kvstore_call_totals(kv, "push", &totals));
  CHECK(totals.calls == 4 && totals.bytes == 4 * kCells * sizeof(float));
  CHECK(totals.seconds > 0 && totals.waiting_seconds <= totals.seconds);
  CHECK(totals.last_rank >= -1 && totals.last_rank < test_size);
  CHECK(totals.last_rank_calls <= 4 && totals.last_rank_seconds <= totals.seconds);
  tutti_call_totals all = {0};
  CHECK_OK(tutti_communicator_call_totals(world, NULL, &all));
  CHECK(all.calls > 4);
  const char* table = NULL;
  CHECK_OK(tutti_kvstore_statistics(kv, &table));
  CHECK(strstr(table, "push") != NULL);
  CHECK_OK(tutti_communicator_statistics(world, &table));
  CHECK(strstr(table, "push") != NULL);
  CHECK_ERROR(tutti_kvstore_statistics(kv, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_statistics: text: expected a pointer, got NULL");
  CHECK_ERROR(tutti_communicator_statistics(world, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "text");
  CHECK_ERROR(tutti_kvstore_call_totals(kv, NULL, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "totals");
  CHECK_OK(tutti_kvstore_destroy(kv));
  CHECK_OK(tutti_communicator_destroy(world));
}

void test_schedule(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 0);
  tutti_optimizer* sgd = NULL;
  CHECK_OK(tutti_optimizer_create("sgd,learning_rate=0.5", &sgd));
  CHECK_OK(tutti_kvstore_set_optimizer(kv, sgd));
  CHECK_OK(tutti_optimizer_set_schedule(sgd, "factor,step=1,factor=0.5"));
  push_all(kv, 3, -1);
  CHECK(stores(kv, 3, 0.5 * test_size));
  push_all(kv, 3, -1);
  CHECK(stores(kv, 3, 0.75 * test_size));
  CHECK_OK(tutti_optimizer_set_schedule(sgd, NULL));
  push_all(kv, 3, -1);
  CHECK(stores(kv, 3, 1.25 * test_size));
  CHECK_OK(tutti_optimizer_set_schedule(sgd, "none"));
  CHECK_ERROR(tutti_optimizer_set_schedule(sgd, "cosin,max_update=9"), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_optimizer_set_schedule: schedule: unknown schedule 'cosin'", "cosine");
  CHECK_ERROR(tutti_optimizer_set_schedule(sgd, "cosine,max_update=0"),
              TUTTI_ERROR_INVALID_ARGUMENT, "max_update=0: expected");
  CHECK_ERROR(tutti_optimizer_set_schedule(NULL, "none"), TUTTI_ERROR_INVALID_ARGUMENT,
              "optimizer: expected a tutti_optimizer, got NULL");
  CHECK_OK(tutti_optimizer_set_learning_rate(sgd, 1));  // which a schedule would refuse
  CHECK_OK(tutti_optimizer_destroy(sgd));
  CHECK_OK(tutti_kvstore_destroy(kv));
}
