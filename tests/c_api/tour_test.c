// SPDX-License-Identifier: Apache-2.0
// The tour through a store, call by call, for every type of store.
#include <stdio.h>
#include <string.h>

#include "tests.h"

enum { kMostUpdates = 8 };

typedef struct updates {
  float factor;
  int count;
  int64_t keys[kMostUpdates];
} updates;

static int scale_and_add(void* user_data, const tutti_key* key, const tutti_tensor* merged,
                         const tutti_tensor* stored) {
  updates* seen = user_data;
  if (key->text != NULL || seen->count == kMostUpdates) return 1;
  seen->keys[seen->count++] = key->number;
  for (int i = 0; i < kCells; ++i) {
    ((float*)stored->data)[i] += ((const float*)merged->data)[i] * seen->factor;
  }
  return 0;
}

static int updated(updates* seen, int count, const int64_t* keys) {
  const int same = seen->count == count && memcmp(seen->keys, keys, count * sizeof *keys) == 0;
  seen->count = 0;
  return same;
}

// Pushes `value` on cpu(0) .. cpu(devices - 1) to each key.
static void push_on_devices(tutti_kvstore* kv, const int64_t* keys, int num_keys, int devices,
                            float value) {
  float cells[4][kCells];
  tutti_tensor values[4];
  tutti_item items[4];
  for (int i = 0; i < devices; ++i) {
    values[i] = filled(cells[i], value);
    values[i].device_index = i;
  }
  for (int i = 0; i < num_keys; ++i) {
    items[i] = item_of(keys[i], values, NULL);
    items[i].num_values = devices;
  }
  CHECK_OK(tutti_kvstore_push(kv, items, num_keys, 0));
}

static void init_all(tutti_kvstore* kv, const int64_t* keys, int num_keys, float value) {
  float cells[kCells];
  const tutti_tensor tensor = filled(cells, value);
  tutti_item items[4];
  for (int i = 0; i < num_keys; ++i) items[i] = item_of(keys[i], &tensor, NULL);
  CHECK_OK(tutti_kvstore_init(kv, items, num_keys));
}

// Pulls each key into tensors on cpu(0) .. cpu(3).
static void check_on_devices(tutti_kvstore* kv, const int64_t* keys, int num_keys, double value) {
  float cells[4][4][kCells];
  tutti_tensor outputs[4][4];
  tutti_item items[4];
  memset(items, 0, sizeof items);  // compilers do not see that num_keys is above 0
  for (int i = 0; i < num_keys; ++i) {
    for (int device = 0; device < 4; ++device) {
      outputs[i][device] = filled(cells[i][device], 77);
      outputs[i][device].device_index = device;
    }
    items[i] = item_of(keys[i], NULL, outputs[i]);
    items[i].num_outputs = 4;
  }
  CHECK_OK(tutti_kvstore_pull(kv, items, num_keys, 0));
  for (int i = 0; i < num_keys; ++i) {
    for (int device = 0; device < 4; ++device) CHECK(all_are(cells[i][device], value));
  }
}

static void tour_one_key(tutti_kvstore* kv, int pushed, updates* seen) {
  const int64_t three = 3;
  init_with(kv, 3, 2);
  CHECK(stores(kv, 3, 2));
  push_all(kv, 3, 8);
  CHECK(stores(kv, 3, 8 * pushed));
  push_on_devices(kv, &three, 1, 4, 1);
  CHECK(stores(kv, 3, 4 * pushed));
  CHECK_OK(tutti_kvstore_set_updater(kv, scale_and_add, seen));
  CHECK(stores(kv, 3, 4 * pushed));
  CHECK(updated(seen, 0, &three));
  push_all(kv, 3, 1);
  CHECK(updated(seen, 1, &three));
  check_on_devices(kv, &three, 1, 6 * pushed);
}

static void tour_lists(tutti_kvstore* kv, int pushed, updates* seen) {
  const int64_t keys[] = {5, 7, 9};
  init_all(kv, keys, 3, 1);
  push_on_devices(kv, keys, 3, 1, 1);
  CHECK(updated(seen, 3, keys));
  check_on_devices(kv, keys, 3, 1 + 2 * pushed);
  push_on_devices(kv, keys, 3, 4, 1);
  CHECK(updated(seen, 3, keys));
  check_on_devices(kv, keys, 3, 1 + 10 * pushed);
}

static void tour_devices(tutti_kvstore* kv, int pushed, updates* seen) {
  const int64_t three = 3;
  const int64_t keys[] = {7, 11, 13, 17};
  init_with(kv, 3, -2);
  CHECK(stores(kv, 3, -2));
  push_all(kv, 3, -7);
  CHECK(stores(kv, 3, -7 * pushed));
  push_on_devices(kv, &three, 1, 3, 1);
  CHECK(stores(kv, 3, 3 * pushed));
  init_all(kv, keys, 4, -3);
  push_on_devices(kv, keys, 4, 3, -0.1f);
  check_on_devices(kv, keys, 4, -0.3 * pushed);
  CHECK_OK(tutti_kvstore_set_updater(kv, scale_and_add, seen));
  push_all(kv, 3, 5);
  CHECK(stores(kv, 3, 3.05 * pushed));
  CHECK(updated(seen, 1, &three));
}

void test_tour(void) {
  const char* const types[] = {"local", "device", "dist"};
  for (int i = 0; i < 3; ++i) {
    const int pushed = i == 2 ? test_size : 1;
    updates seen = {.factor = 2};
    tutti_kvstore* kv = make_store(types[i]);
    tour_one_key(kv, pushed, &seen);
    tour_lists(kv, pushed, &seen);
    CHECK_OK(tutti_kvstore_destroy(kv));
    seen.factor = 0.01f;
    kv = make_store(types[i]);
    tour_devices(kv, pushed, &seen);
    CHECK_OK(tutti_kvstore_destroy(kv));
  }
}
