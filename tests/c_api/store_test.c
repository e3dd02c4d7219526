// SPDX-License-Identifier: Apache-2.0
// A store: the tour call by call, for every type of store; keys, lists, element types and memory;
// updaters written in C, and optimizers made from strings.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static double sum_of_ranks(void) { return test_size * (test_size + 1) / 2; }

void test_keys_and_lists(void) {
  tutti_kvstore* kv = make_store("dist");
  float cells[2][kCells];
  const tutti_tensor values[] = {filled(cells[0], 1), filled(cells[1], 10)};
  tutti_item items[2] = {item_of(0, &values[0], NULL), item_of(0, &values[1], NULL)};
  char name[] = "fc1.weight";
  items[0].key.text = name;
  items[1].key.text = "fc1.bias";
  CHECK_OK(tutti_kvstore_init(kv, items, 2));
  name[0] = 'X';  // the store has its own copy
  items[0].key.text = "fc1.weight";
  CHECK_OK(tutti_kvstore_push(kv, items, 2, 3));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &items[0].key, &view));
  CHECK(all_are(view.data, test_size));
  CHECK_OK(tutti_kvstore_view(kv, &items[1].key, &view));
  CHECK(all_are(view.data, 10 * test_size));

  items[0].key.text = "fc1.bias";  // a key that occurs twice: its values are summed
  CHECK_OK(tutti_kvstore_push(kv, items, 2, 0));
  CHECK(all_are(view.data, 11 * test_size));
  CHECK_OK(tutti_kvstore_push(kv, NULL, 0, 0));  // no key: nothing happens
  CHECK(all_are(view.data, 11 * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));

  kv = make_store("dist");
  const int64_t large = INT64_C(1) << 40;
  init_with(kv, large, 1);
  init_with(kv, -large, 2);
  push_all(kv, -large, 3);
  CHECK(stores(kv, large, 1));
  CHECK(stores(kv, -large, 3 * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_pushpull_and_broadcast(void) {
  tutti_kvstore* kv = make_store("dist");
  float value_cells[kCells];
  float output_cells[2][kCells];
  const tutti_tensor value = filled(value_cells, (float)(5 + test_rank));
  const tutti_tensor outputs[] = {filled(output_cells[0], 0), filled(output_cells[1], 0)};
  tutti_item item = item_of(3, &value, outputs);
  item.num_outputs = 2;
  CHECK_OK(tutti_kvstore_broadcast(kv, &item, 1));
  CHECK(all_are(output_cells[0], 5) && all_are(output_cells[1], 5));  // rank 0's
  CHECK(all_are(value_cells, 5 + test_rank));

  filled(value_cells, (float)(1 + test_rank));
  CHECK_OK(tutti_kvstore_pushpull(kv, &item, 1, 0));
  CHECK(all_are(output_cells[0], sum_of_ranks()) && all_are(output_cells[1], sum_of_ranks()));
  CHECK(all_are(value_cells, 1 + test_rank));
  item.num_outputs = 0;
  CHECK_OK(tutti_kvstore_pushpull(kv, &item, 1, 0));
  CHECK(all_are(value_cells, sum_of_ranks()));
  CHECK_OK(tutti_kvstore_barrier(kv));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static void check_dtype(tutti_kvstore* kv, int dtype, int64_t key, const tutti_tensor* value) {
  const int64_t count = value->ndim == 0 ? 1 : value->shape[0];
  tutti_item item = item_of(key, value, value);
  for (int64_t i = 0; i < count; ++i) set(dtype, value->data, i, (double)(i % 13 + test_rank));
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  CHECK_OK(tutti_kvstore_push(kv, &item, 1, 0));
  memset(value->data, 0, (size_t)(count * size_of(dtype)));
  CHECK_OK(tutti_kvstore_pull(kv, &item, 1, 0));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  CHECK(view.dtype == dtype && view.ndim == value->ndim && view.device_kind == TUTTI_CPU);
  CHECK(view.ndim == 0 || view.shape[0] == count);
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double expected = (double)(i % 13 * test_size + test_size * (test_size - 1) / 2);
    wrong += get(dtype, value->data, i) != expected || get(dtype, view.data, i) != expected;
  }
  CHECK(wrong == 0);
}

void test_dtypes_and_shapes(void) {
  static const int64_t kCounts[] = {0, 1, 7, 50001};
  tutti_kvstore* kv = make_store("dist");
  void* memory = malloc(50001 * sizeof(double));
  int64_t key = 0;
  for (int dtype = TUTTI_FLOAT16; dtype <= TUTTI_INT64; ++dtype) {
    for (int i = 0; i < 4; ++i) {
      const tutti_tensor vector = {.data = memory, .shape = &kCounts[i], .ndim = 1, .dtype = dtype};
      check_dtype(kv, dtype, key++, &vector);
    }
    const tutti_tensor scalar = {.data = memory, .dtype = dtype};
    check_dtype(kv, dtype, key++, &scalar);
  }
  const int64_t shape[TUTTI_MAX_DIMENSIONS] = {2, 1, 1, 3, 1, 1, 1, 1};
  const tutti_tensor deep = {
      .data = memory, .shape = shape, .ndim = TUTTI_MAX_DIMENSIONS, .dtype = TUTTI_FLOAT32};
  const tutti_item item = item_of(key, &deep, NULL);
  filled(memory, 4);
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  CHECK(view.ndim == 8 && memcmp(view.shape, shape, sizeof shape) == 0 && all_are(view.data, 4));

  float cells[kCells];
  double wide[kCells] = {0};
  const tutti_tensor narrow_value = filled(cells, 2.5f);
  tutti_tensor wide_output = narrow_value;
  wide_output.data = wide;
  wide_output.dtype = TUTTI_FLOAT64;
  const tutti_item cast = item_of(1000, &narrow_value, &wide_output);
  CHECK_OK(tutti_kvstore_init(kv, &cast, 1));
  CHECK_OK(tutti_kvstore_pull(kv, &cast, 1, 1));
  CHECK(wide[0] == 2.5 && wide[5] == 2.5);
  free(memory);
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_memory(void) {
  tutti_kvstore* kv = make_store("dist");
  const int64_t shape[] = {2, 3};
  tutti_buffer* buffer = NULL;
  tutti_tensor tensor = {0};
  CHECK_OK(tutti_kvstore_allocate(kv, shape, 2, TUTTI_FLOAT32, &buffer));
  CHECK_OK(tutti_buffer_tensor(buffer, &tensor));
  CHECK(tensor.ndim == 2 && tensor.shape[0] == 2 && tensor.shape[1] == 3);
  CHECK(tensor.dtype == TUTTI_FLOAT32 && all_are(tensor.data, 0));
  filled(tensor.data, (float)(1 + test_rank));
  const tutti_item item = item_of(3, &tensor, NULL);
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
  tutti_tensor view = {0};
  tutti_tensor again = {0};
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  CHECK_OK(tutti_kvstore_push(kv, &item, 1, 0));
  const tutti_tensor one = {.data = tensor.data, .dtype = TUTTI_FLOAT32};
  const tutti_item scalar = item_of(4, &one, NULL);
  CHECK_OK(tutti_kvstore_init(kv, &scalar, 1));
  CHECK_OK(tutti_kvstore_view(kv, &scalar.key, &again));
  CHECK(again.ndim == 0 && again.shape != view.shape);  // views of other keys stay as they are
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &again));
  CHECK(view.data == again.data && view.shape == again.shape);
  CHECK(view.shape[0] == 2 && view.shape[1] == 3 && all_are(view.data, sum_of_ranks()));
  CHECK_OK(tutti_kvstore_destroy(kv));
  CHECK(all_are(tensor.data, 1 + test_rank));  // the buffer outlives the store
  CHECK_OK(tutti_buffer_destroy(buffer));
}

void test_questions(void) {
  static const char* const kTypes[][2] = {
      {"local", "local"}, {"device", "device"}, {"dist", "dist"}, {"nccl", "dist"}};
  for (int i = 0; i < 4; ++i) {
    tutti_kvstore* kv = make_store(kTypes[i][0]);
    int rank = -1;
    int workers = -1;
    int capable = -1;
    const char* type = NULL;
    CHECK_OK(tutti_kvstore_rank(kv, &rank));
    CHECK_OK(tutti_kvstore_num_workers(kv, &workers));
    CHECK_OK(tutti_kvstore_type(kv, &type));
    CHECK(strcmp(type, kTypes[i][1]) == 0);
    CHECK(rank == (i < 2 ? 0 : test_rank) && workers == (i < 2 ? 1 : test_size));
    CHECK_OK(tutti_kvstore_is_capable(kv, "optimizer", &capable));
    CHECK(capable == 1);
    CHECK_OK(tutti_kvstore_is_capable(kv, "magic", &capable));
    CHECK(capable == 0);
    CHECK_OK(tutti_kvstore_barrier(kv));
    CHECK_OK(tutti_kvstore_destroy(kv));
  }
  CHECK_OK(tutti_kvstore_destroy(NULL));
}

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

void test_gradient_scaling(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 1);
  tutti_gradient_scaling scaling = {0};
  CHECK_OK(tutti_kvstore_gradient_scaling(kv, &scaling));
  CHECK(scaling.loss_scale == 1 && scaling.skipped == 0);
  tutti_optimizer* sgd = run_optimizer(kv, "sgd,learning_rate=0.5,loss_scale=dynamic,init_scale=8");
  push_all(kv, 3, INFINITY);
  CHECK(stores(kv, 3, 1));
  CHECK_OK(tutti_kvstore_gradient_scaling(kv, &scaling));
  CHECK(scaling.loss_scale == 4 && scaling.skipped == 1 && scaling.was_skipped == 1);
  push_all(kv, 3, 4);
  CHECK(stores(kv, 3, 1 - 0.5 * test_size));
  CHECK_OK(tutti_kvstore_gradient_scaling(kv, &scaling));
  CHECK(scaling.good_pushes == 1 && scaling.was_skipped == 0 && scaling.norm > 0);
  CHECK(tutti_kvstore_gradient_scaling(kv, NULL) == TUTTI_ERROR_INVALID_ARGUMENT);
  CHECK_OK(tutti_optimizer_destroy(sgd));
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
