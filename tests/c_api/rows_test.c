// SPDX-License-Identifier: Apache-2.0
// Row-sparse keys, options of a pull, and gradient compression.
#include <string.h>

#include "tests.h"

static const int64_t kTable[] = {5, 2};
static const int64_t kOne[] = {1, 2};
static const int64_t kTwo[] = {2, 2};

/// Two rows of two elements each.
static tutti_rows two_rows(int64_t* ids, float* cells, float first, float second) {
  for (int i = 0; i < 4; ++i) cells[i] = i < 2 ? first : second;
  const tutti_rows rows = {
      .ids = {.data = ids, .shape = kTwo, .ndim = 1, .dtype = TUTTI_INT64},
      .rows = {.data = cells, .shape = kTwo, .ndim = 2, .dtype = TUTTI_FLOAT32}};
  return rows;
}

static tutti_rows_item rows_item(int64_t key, const tutti_rows* values) {
  const tutti_rows_item item = {.key = {.number = key}, .values = values, .num_values = 1};
  return item;
}

static tutti_kvstore* store_with_table(void) {
  tutti_kvstore* kv = make_store("dist");
  const tutti_key key = {.number = 3};
  CHECK_OK(tutti_kvstore_init_row_sparse_zeros(kv, &key, kTable, 2, TUTTI_FLOAT32));
  return kv;
}

/// True if the row has this value in both elements.
static int row_is(tutti_kvstore* kv, int row, float value) {
  const tutti_key key = {.number = 3};
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &key, &view));
  const float* cells = (const float*)view.data + 2 * row;
  return cells[0] == value && cells[1] == value;
}

void test_rows(void) {
  tutti_kvstore* kv = store_with_table();
  int64_t ids[] = {4, 1};
  float cells[4];
  const tutti_rows rows = two_rows(ids, cells, 1, 2);
  const tutti_rows_item item = rows_item(3, &rows);
  CHECK_OK(tutti_kvstore_push_rows(kv, &item, 1, 2));
  CHECK(row_is(kv, 4, (float)test_size) && row_is(kv, 1, (float)(2 * test_size)));
  CHECK(row_is(kv, 0, 0));

  int8_t asked[] = {4, 0, 4};
  const int64_t three[] = {3};
  const tutti_tensor row_ids = {.data = asked, .shape = three, .ndim = 1, .dtype = TUTTI_INT8};
  tutti_buffer* found_ids = NULL;
  tutti_buffer* found_rows = NULL;
  tutti_tensor tensor = {0};
  CHECK_OK(tutti_kvstore_row_sparse_pull(kv, &item.key, &row_ids, &found_ids, &found_rows));
  CHECK_OK(tutti_buffer_tensor(found_ids, &tensor));
  CHECK(tensor.ndim == 1 && tensor.shape[0] == 2 && tensor.dtype == TUTTI_INT64);
  CHECK(((int64_t*)tensor.data)[0] == 0 && ((int64_t*)tensor.data)[1] == 4);
  CHECK_OK(tutti_buffer_tensor(found_rows, &tensor));
  CHECK(tensor.ndim == 2 && tensor.shape[0] == 2 && tensor.shape[1] == 2);
  CHECK(((float*)tensor.data)[0] == 0 && ((float*)tensor.data)[3] == (float)test_size);
  CHECK_OK(tutti_buffer_destroy(found_ids));
  CHECK_OK(tutti_buffer_destroy(found_rows));
  const tutti_row_pull to_host = {.key = item.key, .row_ids = row_ids};
  CHECK_OK(tutti_kvstore_row_sparse_pull_with(kv, &to_host, &found_ids, &found_rows));
  CHECK_OK(tutti_buffer_tensor(found_rows, &tensor));
  CHECK(tensor.device_kind == TUTTI_CPU && ((float*)tensor.data)[3] == (float)test_size);
  CHECK_OK(tutti_buffer_destroy(found_ids));
  CHECK_OK(tutti_buffer_destroy(found_rows));

  float table[10] = {7};
  const tutti_tensor output = {.data = table, .shape = kTable, .ndim = 2, .dtype = TUTTI_FLOAT32};
  const tutti_item whole = item_of(3, NULL, &output);
  CHECK_OK(tutti_kvstore_pull(kv, &whole, 1, 0));
  CHECK(table[0] == 7);  // ignored
  const tutti_pull_options options = {.whole_tables = 1, .priority = 1};
  CHECK_OK(tutti_kvstore_pull_with(kv, &whole, 1, &options));
  CHECK(table[0] == 0 && table[2] == (float)(2 * test_size));

  for (int i = 0; i < 10; ++i) table[i] = (float)test_rank;
  const tutti_item full = item_of(5, &output, NULL);
  CHECK_OK(tutti_kvstore_init_row_sparse(kv, &full, 1));
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_view(kv, &full.key, &view));
  CHECK(((float*)view.data)[9] == 0);  // rank 0's
  CHECK_OK(tutti_kvstore_destroy(kv));
}

static int add_rows(void* user_data, const tutti_key* key, const tutti_rows* merged,
                    const tutti_tensor* stored) {
  const int64_t* ids = merged->ids.data;
  const float* rows = merged->rows.data;
  for (int64_t i = 0; i < merged->ids.shape[0]; ++i) {
    for (int j = 0; j < 2; ++j) ((float*)stored->data)[2 * ids[i] + j] += rows[2 * i + j];
  }
  *(int64_t*)user_data += key->number;
  return 0;
}

static int add_nothing(void* user_data, const tutti_key* key, const tutti_tensor* merged,
                       const tutti_tensor* stored) {
  (void)user_data, (void)key, (void)merged, (void)stored;
  return 0;
}

void test_row_updater(void) {
  tutti_kvstore* kv = store_with_table();
  int64_t sum_of_keys = 0;
  int64_t ids[] = {2, 2};
  float cells[4];
  const tutti_rows rows = two_rows(ids, cells, 1, 2);
  const tutti_rows_item item = rows_item(3, &rows);
  CHECK_OK(tutti_kvstore_set_updaters(kv, add_nothing, add_rows, &sum_of_keys));
  CHECK_OK(tutti_kvstore_push_rows(kv, &item, 1, 0));
  CHECK_OK(tutti_kvstore_push_rows(kv, &item, 1, 0));
  CHECK(row_is(kv, 2, (float)(6 * test_size)) && sum_of_keys == 6);
  CHECK_OK(tutti_kvstore_set_updater(kv, add_nothing, NULL));
  CHECK_ERROR(tutti_kvstore_push_rows(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "key 3 (5, 2) float32", "the updater takes dense values");
  CHECK_ERROR(tutti_kvstore_set_updaters(kv, NULL, add_rows, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "a function for rows, but none for dense values; give both");
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_bad_rows(void) {
  tutti_kvstore* kv = store_with_table();
  int64_t ids[] = {0, is_last() ? 5 : 1};
  float cells[4];
  tutti_rows rows = two_rows(ids, cells, 1, 1);
  tutti_rows_item item = rows_item(3, &rows);
  CHECK_ERROR(tutti_kvstore_push_rows(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "key 3 (5, 2) float32", "row id 5 at position 1: expected 0 to 4");
  ids[1] = 1;
  if (is_last()) rows.ids.dtype = 99;
  CHECK_ERROR(tutti_kvstore_push_rows(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_push_rows: items[0].values[0].ids.dtype", "got 99");
  rows.ids.dtype = TUTTI_INT64;
  if (is_last()) rows.rows.shape = kOne;
  CHECK_ERROR(tutti_kvstore_push_rows(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "rows have shape (1, 2), expected (2, 2)");
  rows.rows.shape = kTwo;
  if (is_last()) item.values = NULL;
  CHECK_ERROR(tutti_kvstore_push_rows(kv, &item, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "items[0].values: expected a list of 1, got NULL");
  item.values = &rows;
  tutti_buffer* buffer = NULL;
  CHECK_ERROR(tutti_kvstore_row_sparse_pull(kv, &item.key, NULL, &buffer, &buffer),
              TUTTI_ERROR_INVALID_ARGUMENT, "row_ids: expected a pointer, got NULL");
  CHECK_ERROR(tutti_kvstore_row_sparse_pull(kv, &item.key, &rows.rows, &buffer, &buffer),
              TUTTI_ERROR_INVALID_ARGUMENT, "row ids have dtype float32");
  CHECK_ERROR(tutti_kvstore_row_sparse_pull_with(kv, NULL, &buffer, &buffer),
              TUTTI_ERROR_INVALID_ARGUMENT, "pull: expected a pointer, got NULL");
  tutti_row_pull pull = {.key = item.key, .row_ids = rows.ids, .device_kind = 2};
  CHECK_ERROR(tutti_kvstore_row_sparse_pull_with(kv, &pull, &buffer, &buffer),
              TUTTI_ERROR_INVALID_ARGUMENT, "pull.device_kind: expected 0 (cpu) or 1 (gpu), got 2");
  pull.device_kind = TUTTI_GPU;
  pull.device_index = 1000;
  CHECK_ERROR(tutti_kvstore_row_sparse_pull_with(kv, &pull, &buffer, &buffer),
              TUTTI_ERROR_INVALID_ARGUMENT, "gpu(1000)");
  CHECK_ERROR(tutti_kvstore_pull_with(kv, NULL, 0, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "options: expected a pointer, got NULL");
  CHECK_OK(tutti_kvstore_push_rows(kv, &item, 1, 0));
  CHECK(row_is(kv, 1, (float)test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_compression(void) {
  tutti_kvstore* kv = make_store("dist");
  init_with(kv, 3, 0);
  CHECK_OK(tutti_kvstore_set_gradient_compression(kv, "2bit,threshold=0.5"));
  push_all(kv, 3, 0.75f);
  CHECK(stores(kv, 3, 0.5 * test_size));
  push_all(kv, 3, 0.25f);  // with what was left
  CHECK(stores(kv, 3, 0.5 * test_size));
  CHECK_OK(tutti_kvstore_set_gradient_compression(kv, "none"));
  push_all(kv, 3, 0.25f);
  CHECK(stores(kv, 3, 0.25 * test_size));
  CHECK_ERROR(tutti_kvstore_set_gradient_compression(kv, "3bit"), TUTTI_ERROR_INVALID_ARGUMENT,
              "unknown compression '3bit'", "2bit");
  CHECK_ERROR(tutti_kvstore_set_gradient_compression(kv, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "compression: expected a pointer, got NULL");
  CHECK_OK(tutti_kvstore_destroy(kv));
}
