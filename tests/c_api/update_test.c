// SPDX-License-Identifier: Apache-2.0
// Updaters written in C, and optimizers made from strings.
#include <string.h>

#include "tests.h"

typedef struct observer {
  tutti_kvstore* kv;
  int calls;
  double merged;
  char key[32];
  int shape_is_right;
} observer;

// stored = stored + merged / 2; looks into the store, and tries what it may not.
static int observe(void* user_data, const tutti_key* key, const tutti_tensor* merged,
                   const tutti_tensor* stored) {
  observer* seen = user_data;
  ++seen->calls;
  seen->merged = (double)((const float*)merged->data)[5];
  strncpy(seen->key, key->text == NULL ? "a number" : key->text, sizeof seen->key - 1);
  seen->shape_is_right = merged->ndim == 2 && merged->shape[1] == 3 && stored->shape[0] == 2 &&
                         merged->dtype == TUTTI_FLOAT32 && stored->dtype == TUTTI_FLOAT32;
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(seen->kv, key, &view));
  CHECK(view.data == stored->data);
  CHECK_ERROR(tutti_kvstore_barrier(seen->kv), TUTTI_ERROR_INVALID_ARGUMENT, "barrier", "updater");
  CHECK(tutti_last_error_is_recoverable());
  CHECK_ERROR(tutti_kvstore_destroy(seen->kv), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_destroy: kv: expected a store without a call under way, got one whose "
              "updater is running");
  for (int i = 0; i < kCells; ++i) {
    ((float*)stored->data)[i] += ((const float*)merged->data)[i] / 2;
  }
  return 0;
}

void test_updater(void) {
  tutti_kvstore* kv = make_store("dist");
  observer seen = {.kv = kv};
  float cells[kCells];
  const tutti_tensor value = filled(cells, 4);
  tutti_item item = item_of(0, &value, NULL);
  item.key.text = "bias";
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  CHECK_OK(tutti_kvstore_set_updater(kv, observe, &seen));
  CHECK_OK(tutti_kvstore_push(kv, &item, 1, 0));
  CHECK(seen.calls == 1 && seen.merged == 4 * test_size && seen.shape_is_right);
  CHECK(strcmp(seen.key, "bias") == 0);
  CHECK(all_are(view.data, 4 + 2 * test_size));
  CHECK_OK(tutti_kvstore_set_updater(kv, NULL, NULL));
  CHECK_OK(tutti_kvstore_push(kv, &item, 1, 0));
  CHECK(seen.calls == 1 && all_are(view.data, 4 * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static tutti_optimizer* run_optimizer(tutti_kvstore* kv, const char* text) {
  tutti_optimizer* optimizer = NULL;
  CHECK_OK(tutti_optimizer_create(text, &optimizer));
  CHECK_OK(tutti_kvstore_set_optimizer(kv, optimizer));
  return optimizer;
}

void test_optimizer(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  tutti_optimizer* sgd = run_optimizer(kv, "sgd,learning_rate=0.5,momentum=0.5");
  double rate = 0;
  CHECK_OK(tutti_optimizer_learning_rate(sgd, &rate));
  CHECK(rate == 0.5);
  double weight = 1;
  double velocity = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      rate = 0.25;
      CHECK_OK(tutti_optimizer_set_learning_rate(sgd, rate));
    }
    push_all(kv, 3, (float)(step + 1));
    velocity = 0.5 * velocity - rate * (step + 1) * test_size;
    weight += velocity;
    CHECK(stores(kv, 3, weight));
  }
  CHECK_OK(tutti_optimizer_destroy(sgd));
  push_all(kv, 3, 0);  // the store goes on with it
  CHECK(stores(kv, 3, weight + 0.5 * velocity));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_multipliers(void) {
  tutti_kvstore* kv = make_store("dist");
  for (int64_t key = 3; key < 6; ++key) init_with(kv, key, 1);
  tutti_optimizer* sgd = run_optimizer(kv, "sgd,learning_rate=0.5,weight_decay=0.25");
  const tutti_key four = {.number = 4};
  const tutti_key five = {.number = 5};
  CHECK_OK(tutti_optimizer_set_lr_mult(sgd, &four, 0.5));
  CHECK_OK(tutti_optimizer_set_wd_mult(sgd, &five, 0));
  for (int64_t key = 3; key < 6; ++key) push_all(kv, key, 1);
  CHECK(stores(kv, 3, 1 - 0.5 * (test_size + 0.25)));
  CHECK(stores(kv, 4, 1 - 0.25 * (test_size + 0.25)));
  CHECK(stores(kv, 5, 1 - 0.5 * test_size));
  CHECK_OK(tutti_optimizer_destroy(sgd));
  CHECK_OK(tutti_optimizer_destroy(NULL));
  CHECK_OK(tutti_kvstore_destroy(kv));
}
