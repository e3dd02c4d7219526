// SPDX-License-Identifier: Apache-2.0
// Keys, lists, element types and memory of a store; the tour has the rest.
#include <stdlib.h>
#include <string.h>

#include "tests.h"

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
