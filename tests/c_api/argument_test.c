// SPDX-License-Identifier: Apache-2.0
// Arguments that are wrong on one rank of a collective call.
#include <stdio.h>
#include <string.h>

#include "tests.h"

// A call with an argument that is wrong on the last rank alone: an error on every rank, which names
// rank, function and argument, and after which all go on.
#define CHECK_REFUSED(call, ...)                                             \
  do {                                                                       \
    char rank_name[32];                                                      \
    snprintf(rank_name, sizeof rank_name, "rank %d", test_size - 1);         \
    CHECK_ERROR(call, TUTTI_ERROR_INVALID_ARGUMENT, rank_name, __VA_ARGS__); \
    CHECK(tutti_last_error_is_recoverable());                                \
    CHECK(tutti_last_error_is_reporter() == (test_rank == 0));               \
  } while (0)

typedef struct wrong_value {
  tutti_tensor tensor;
  const char* place;
  const char* expected;
  const char* got;
} wrong_value;

static const int64_t kNegative[] = {2, -3};
static const int64_t kTooMany[] = {INT64_C(1) << 40, INT64_C(1) << 40};

// All are wrong but for the first, which is right.
static void make_values(wrong_value* values, float* cells) {
  const tutti_tensor right = filled(cells, 1);
  const wrong_value all[] = {
      {right, "", "", ""},
      {right, ".dtype: ", "expected 1 (float16) to 8 (int64)", "got 0"},
      {right, ".dtype: ", "expected 1 (float16) to 8 (int64)", "got 42"},
      {right, ".ndim: ", "expected 0 to 8", "got -1"},
      {right, ".ndim: ", "expected 0 to 8", "got 9"},
      {right, ".shape: ", "expected a list of 2", "got NULL"},
      {right, ".shape: ", "expected no negative dimension", "got -3"},
      {right, ".shape: ", "expected fewer than 2^63 elements", "got more"},
      {right, ".device_kind: ", "expected 0 (cpu) or 1 (gpu)", "got 2"},
      {right, ".device_index: ", "expected at least 0", "got -1"},
      {right, "", "a tensor without memory", ""},
      {right, "", "gpu(99)", "key "},
  };
  memcpy(values, all, sizeof all);
  values[1].tensor.dtype = 0;
  values[2].tensor.dtype = 42;
  values[3].tensor.ndim = -1;
  values[4].tensor.ndim = 9;
  values[5].tensor.shape = NULL;
  values[6].tensor.shape = kNegative;
  values[7].tensor.shape = kTooMany;
  values[8].tensor.device_kind = 2;
  values[9].tensor.device_index = -1;
  values[10].tensor.data = NULL;
  values[11].tensor.device_kind = TUTTI_GPU;
  values[11].tensor.device_index = 99;
}
enum { kNumValues = 12 };

static void check_usable(tutti_kvstore* kv) {
  push_all(kv, 3, 2);
  CHECK(stores(kv, 3, 2 * test_size));
}

static void check_values(tutti_kvstore* kv, float* cells) {
  wrong_value values[kNumValues];
  make_values(values, cells);
  for (int i = 1; i < kNumValues; ++i) {
    const wrong_value* wrong = &values[i];
    const tutti_tensor pair[] = {values[0].tensor, values[is_last() ? i : 0].tensor};
    tutti_item items[] = {item_of(5, pair, NULL), item_of(3, pair, pair)};
    items[1].num_values = 2;
    const int is_ours = wrong->place[0] != '\0';
    char place[64] = "";
    if (is_ours) {
      snprintf(place, sizeof place, "tutti_kvstore_push: items[1].values[1]%s", wrong->place);
    }
    CHECK_REFUSED(tutti_kvstore_push(kv, items, 2, 0), place, wrong->expected, wrong->got);
    CHECK_REFUSED(tutti_kvstore_pushpull(kv, items + 1, 1, 0), wrong->expected, wrong->got);
    items[1].key.number = 7;
    CHECK_REFUSED(tutti_kvstore_init(kv, items + 1, 1), wrong->expected, wrong->got);
    CHECK_REFUSED(tutti_kvstore_broadcast(kv, items + 1, 1), wrong->expected, wrong->got);
    items[1] = item_of(3, NULL, &wrong->tensor);
    CHECK_ERROR(tutti_kvstore_pull(kv, items + 1, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT,
                is_ours ? "tutti_kvstore_pull: items[0].outputs[0]" : "pull: key 3",
                wrong->expected, wrong->got);
  }
}

void test_bad_items(void) {
  tutti_kvstore* kv = make_store("dist");
  float cells[kCells];
  const tutti_tensor value = filled(cells, 1);
  init_with(kv, 3, 1);
  init_with(kv, 5, 1);
  check_values(kv, cells);
  tutti_item item = item_of(3, &value, &value);
  const int last = is_last();
  CHECK_REFUSED(tutti_kvstore_push(kv, last ? NULL : &item, 1, 0),
                "tutti_kvstore_push: items: expected a list of 1, got NULL");
  item.key.number = 7;
  CHECK_REFUSED(tutti_kvstore_init(kv, &item, last ? -2 : 1),
                "tutti_kvstore_init: items: expected a count of at least 0, got -2");
  item.key.number = 3;
  if (last) item.num_values = -1;
  CHECK_REFUSED(tutti_kvstore_push(kv, &item, 1, 0),
                "tutti_kvstore_push: items[0].values: expected a count of at least 0, got -1");
  item = item_of(3, last ? NULL : &value, NULL);
  item.num_values = 1;
  CHECK_REFUSED(tutti_kvstore_push(kv, &item, 1, 0),
                "tutti_kvstore_push: items[0].values: expected a list of 1, got NULL");
  item = item_of(3, &value, last ? NULL : &value);
  item.num_outputs = 1;
  CHECK_REFUSED(tutti_kvstore_pushpull(kv, &item, 1, 0),
                "tutti_kvstore_pushpull: items[0].outputs: expected a list of 1, got NULL");
  item = item_of(3, last ? NULL : &value, NULL);
  CHECK_REFUSED(tutti_kvstore_push(kv, &item, 1, 0), "push: key 3 has no tensor");
  check_usable(kv);
  CHECK_OK(tutti_kvstore_destroy(kv));

  kv = make_store("local");  // one rank, the same errors
  init_with(kv, 3, 1);
  CHECK_ERROR(tutti_kvstore_push(kv, NULL, 1, 0), TUTTI_ERROR_INVALID_ARGUMENT, "rank 0",
              "tutti_kvstore_push: items: expected a list of 1, got NULL");
  push_all(kv, 3, 2);
  CHECK(stores(kv, 3, 2));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_bad_collective_arguments(void) {
  tutti_communicator* world = NULL;
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  const int last = is_last();
  float cells[3][kCells];
  float all_cells[8 * kCells] = {0};
  const int64_t shape[] = {test_size, 2, 3};
  tutti_tensor blocks = {.data = all_cells, .shape = shape, .ndim = 3, .dtype = TUTTI_FLOAT32};
  const tutti_tensor in = filled(cells[0], 1);
  const tutti_tensor out = filled(cells[1], 0);
  tutti_tensor typed = filled(cells[2], 0);
  if (last) typed.dtype = 9;
  const char* const dtype = "dtype: expected 1 (float16) to 8 (int64), got 9";
  CHECK_REFUSED(tutti_communicator_allreduce(world, last ? NULL : &in, &out, TUTTI_SUM),
                "tutti_communicator_allreduce: input: expected a pointer, got NULL");
  CHECK_REFUSED(tutti_communicator_allreduce(world, &in, &typed, TUTTI_SUM),
                "tutti_communicator_allreduce: output.dtype", dtype);
  CHECK_REFUSED(tutti_communicator_allreduce(world, &in, &out, last ? 4 : TUTTI_SUM),
                "tutti_communicator_allreduce: op: expected 0 (sum), 1 (prod), 2 (min) or 3 (max), "
                "got 4");
  CHECK_REFUSED(tutti_communicator_reduce(world, &in, NULL, test_size - 1, TUTTI_SUM),
                "tutti_communicator_reduce: output: expected a pointer, got NULL");
  CHECK_REFUSED(tutti_communicator_reduce(world, &in, &out, last ? 99 : 0, TUTTI_SUM),
                "reduce: root 99 is not a rank");
  if (last) blocks.dtype = 9;
  CHECK_REFUSED(tutti_communicator_reduce_scatter(world, &blocks, &out, TUTTI_SUM),
                "tutti_communicator_reduce_scatter: input.dtype", dtype);
  CHECK_REFUSED(tutti_communicator_allgather(world, &in, last ? NULL : &blocks),
                "tutti_communicator_allgather: output: expected a pointer, got NULL");
  CHECK_REFUSED(tutti_communicator_broadcast(world, &typed, 0),
                "tutti_communicator_broadcast: tensor.dtype", dtype);
  CHECK_OK(tutti_communicator_allreduce(world, &in, &out, TUTTI_SUM));
  CHECK(all_are(cells[1], test_size));
  CHECK_OK(tutti_communicator_destroy(world));
}
