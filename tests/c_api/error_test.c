// SPDX-License-Identifier: Apache-2.0
// Arguments that are wrong on one rank of a collective call, wrong handles, wrong arguments of
// local calls, and errors of the library as a program in C sees them.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>

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
      {right, ".data: ", "expected an address that is a multiple of 4", "got another one"},
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
  values[12].tensor.data = (char*)cells + 1;
}
enum { kNumValues = 13 };

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
  CHECK_REFUSED(tutti_communicator_allreduce(world, &in, &out, last ? 5 : TUTTI_SUM),
                "tutti_communicator_allreduce: op: expected 0 (sum), 1 (prod), 2 (min), 3 (max) "
                "or 4 (avg), got 5");
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
  tutti_communicator* group = NULL;
  const int ranks[] = {0, last ? test_size : test_size - 1};
  CHECK_REFUSED(tutti_communicator_split(world, 0, 0, last ? NULL : &group),
                "tutti_communicator_split: group: expected a pointer, got NULL");
  CHECK_REFUSED(tutti_communicator_subgroup(world, last ? NULL : ranks, 1, &group),
                "tutti_communicator_subgroup: ranks: expected a list of 1, got NULL");
  CHECK_REFUSED(tutti_communicator_subgroup(world, ranks, last ? 2 : 1, &group),
                "is not a rank; expected 0 to");
  CHECK_REFUSED(tutti_communicator_subgroup(world, ranks, last ? 0 : 1, &group),
                "a group needs a rank");
  CHECK_ERROR(tutti_communicator_create_group(world, ranks, 1, NULL), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_communicator_create_group: group: expected a pointer, got NULL");
  CHECK_ERROR(tutti_communicator_create_group(world, NULL, 1, &group), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_communicator_create_group: ranks: expected a list of 1, got NULL");
  CHECK_ERROR(tutti_communicator_create_group(world, ranks, 0, &group),
              TUTTI_ERROR_INVALID_ARGUMENT, "create_group(): a group needs a rank");
  CHECK(group == NULL);
  CHECK_OK(tutti_communicator_allreduce(world, &in, &out, TUTTI_SUM));
  CHECK(all_are(cells[1], test_size));
  CHECK_OK(tutti_communicator_destroy(world));
}

static const int64_t kShape[] = {2, 3};

#define CHECK_NO_HANDLE(function, place, arguments)             \
  CHECK_ERROR(function arguments, TUTTI_ERROR_INVALID_ARGUMENT, \
              #function ": " place ": expected a ", ", got NULL")

void test_bad_handles(void) {
  CHECK_NO_HANDLE(tutti_kvstore_create_over, "communicator", (NULL, &(tutti_kvstore*){NULL}));
  CHECK_NO_HANDLE(tutti_kvstore_init, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_push, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_pull, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_pushpull, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_broadcast, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_view, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_allocate, "kv", (NULL, NULL, 0, TUTTI_INT8, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_updater, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_optimizer, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_updaters, "kv", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_gradient_compression, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_pull_with, "kv", (NULL, NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_init_row_sparse, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_init_row_sparse_zeros, "kv", (NULL, NULL, NULL, 0, 1));
  CHECK_NO_HANDLE(tutti_kvstore_push_rows, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_row_sparse_pull, "kv", (NULL, NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_row_sparse_pull_with, "kv", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_save, "kv", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_load, "kv", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_loaded_metadata, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_loaded_warnings, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_save_optimizer_states, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_load_optimizer_states, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_barrier, "kv", (NULL));
  CHECK_NO_HANDLE(tutti_kvstore_agree, "kv", (NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_rank, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_num_workers, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_type, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_is_capable, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_topology, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_split, "communicator", (NULL, 0, 0, NULL));
  CHECK_NO_HANDLE(tutti_communicator_subgroup, "communicator", (NULL, NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_communicator_create_group, "communicator", (NULL, NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_communicator_job_rank, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_algorithms, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allocate, "communicator", (NULL, NULL, 0, 1, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allreduce, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_reduce, "communicator", (NULL, NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_communicator_reduce_scatter, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_allgather, "communicator", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_broadcast, "communicator", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_gather, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_scatter, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_exchange_counts, "communicator", (NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allgatherv, "communicator", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_reduce_scatterv, "communicator", (NULL, NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_alltoall, "communicator", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_alltoallv, "communicator", (NULL, NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_send, "communicator", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_receive, "communicator", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_allreduce_by, "communicator", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_reduce_by, "communicator", (NULL, NULL, NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_communicator_reduce_scatter_by, "communicator", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_barrier, "communicator", (NULL));
  CHECK_NO_HANDLE(tutti_communicator_agree, "communicator", (NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_optimizer_set_learning_rate, "optimizer", (NULL, 1));
  CHECK_NO_HANDLE(tutti_optimizer_learning_rate, "optimizer", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_optimizer_set_lr_mult, "optimizer", (NULL, NULL, 1));
  CHECK_NO_HANDLE(tutti_optimizer_set_wd_mult, "optimizer", (NULL, NULL, 1));
  CHECK_NO_HANDLE(tutti_buffer_tensor, "buffer", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_push_async, "kv", (NULL, NULL, 0, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_pushpull_async, "kv", (NULL, NULL, 0, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allreduce_async, "communicator",
                  (NULL, NULL, NULL, 0, NULL, NULL));
  CHECK_NO_HANDLE(tutti_pending_ready, "pending", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_pending_wait, "pending", (NULL));
  CHECK_NO_HANDLE(tutti_preemption_pass_on, "signals", (NULL));
  CHECK_NO_HANDLE(tutti_preemption_received, "signals", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_stop_requested, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_request_stop, "kv", (NULL));
  CHECK_NO_HANDLE(tutti_communicator_stop_requested, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_request_stop, "communicator", (NULL));

  tutti_communicator* self = NULL;
  CHECK_OK(tutti_communicator_self(test_settings, &self));
  void* const communicator = self;
  static int64_t junk[64] = {42};
  CHECK_ERROR(tutti_kvstore_barrier(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_barrier: kv: expected a tutti_kvstore, got a tutti_communicator");
  CHECK_ERROR(tutti_kvstore_destroy(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_destroy: kv: expected a tutti_kvstore, got a tutti_communicator");
  CHECK_ERROR(tutti_optimizer_destroy(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_optimizer, got a tutti_communicator");
  CHECK_ERROR(tutti_buffer_destroy((void*)junk), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_buffer, got what is no handle of this library");
  CHECK_ERROR(tutti_communicator_destroy((void*)junk), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_communicator, got what is no handle of this library");
  CHECK_OK(tutti_communicator_barrier(self));
  CHECK_OK(tutti_communicator_destroy(self));
}

#define CHECK_INVALID(call, ...) CHECK_ERROR(call, TUTTI_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define NO_POINTER ": expected a pointer, got NULL"

void test_bad_local_arguments(void) {
  tutti_kvstore* kv = make_store("local");
  init_with(kv, 3, 1);
  const tutti_key three = {.number = 3};
  tutti_tensor view = {.ndim = 77};
  tutti_buffer* buffer = NULL;
  int capable = 0;
  CHECK_INVALID(tutti_kvstore_view(kv, NULL, &view), "tutti_kvstore_view: key" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_view(kv, &three, NULL), "tutti_kvstore_view: view" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_view(kv, &(tutti_key){.number = 4}, &view), "key 4", "unknown");
  CHECK_INVALID(tutti_kvstore_view(kv, &(tutti_key){.text = "w"}, &view), "key w", "a string");
  CHECK(view.ndim == 77);  // as it was
  CHECK_INVALID(tutti_kvstore_allocate(kv, kShape, 2, 9, &buffer),
                "tutti_kvstore_allocate: dtype: expected 1 (float16) to 8 (int64), got 9");
  CHECK_INVALID(tutti_kvstore_allocate(kv, kNegative, 2, TUTTI_INT8, &buffer),
                "tutti_kvstore_allocate: shape: ", "got -3");
  CHECK_INVALID(tutti_kvstore_allocate(kv, NULL, 2, TUTTI_INT8, &buffer),
                "tutti_kvstore_allocate: shape: expected a list of 2, got NULL");
  CHECK_INVALID(tutti_kvstore_allocate(kv, kShape, 2, TUTTI_INT8, NULL),
                "tutti_kvstore_allocate: buffer" NO_POINTER);
  CHECK(buffer == NULL);
  CHECK_INVALID(tutti_kvstore_rank(kv, NULL), "tutti_kvstore_rank: rank" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_num_workers(kv, NULL), "num_workers" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_type(kv, NULL), "tutti_kvstore_type: type" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_stop_requested(kv, NULL), "requested" NO_POINTER);
  CHECK_INVALID(tutti_preemption_create(NULL), "tutti_preemption_create: signals" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_is_capable(kv, NULL, &capable), "capability" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_is_capable(kv, "optimizer", NULL), "capable" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_set_optimizer(kv, NULL),
                "tutti_kvstore_set_optimizer: optimizer: expected a tutti_optimizer, got NULL");

  tutti_optimizer* optimizer = NULL;
  CHECK_INVALID(tutti_optimizer_create(NULL, &optimizer), "text" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_create("sgd", NULL), "optimizer" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_create("sdg", &optimizer),
                "tutti_optimizer_create: text: unknown optimizer 'sdg', did you mean ");
  CHECK_INVALID(tutti_optimizer_create("sgd,momentum=2", &optimizer), "momentum=2", "expected");
  CHECK(optimizer == NULL);
  CHECK_OK(tutti_optimizer_create("sgd", &optimizer));
  CHECK_INVALID(tutti_optimizer_set_learning_rate(optimizer, -1), "learning_rate", "-1");
  CHECK_INVALID(tutti_optimizer_learning_rate(optimizer, NULL), "learning_rate" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_set_lr_mult(optimizer, NULL, 1), "key" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_set_wd_mult(optimizer, &three, 1.0 / 0.0), "wd_mult", "inf");
  CHECK_OK(tutti_optimizer_destroy(optimizer));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_bad_creation(void) {
  tutti_kvstore* kv = NULL;
  tutti_communicator* communicator = NULL;
  static const char* const kUnknown[] = {"TUTTI_TIMOUT=5", NULL};
  static const char* const kNoPrefix[] = {"TUTTI_TIMEOUT=5", "WARNINGS=0", NULL};
  static const char* const kNoValue[] = {"TUTTI_TIMEOUT", NULL};
  static const char* const kBadValue[] = {"TUTTI_TIMEOUT=soon", NULL};
  CHECK_INVALID(tutti_kvstore_create("remote", NULL, &kv), "'remote'", "expected local (or");
  CHECK_INVALID(tutti_kvstore_create(NULL, NULL, &kv), "tutti_kvstore_create: type" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_create("local", NULL, NULL), "tutti_kvstore_create: kv" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_create("dist", kUnknown, &kv),
                "tutti_kvstore_create: settings: TUTTI_TIMOUT is not a setting; did you mean "
                "TUTTI_TIMEOUT?");
  CHECK_INVALID(tutti_kvstore_create("dist", kNoPrefix, &kv),
                "settings[1]: expected TUTTI_<name>=<value>, got 'WARNINGS=0'");
  CHECK_INVALID(tutti_communicator_world(kNoValue, &communicator),
                "tutti_communicator_world: settings[0]: expected TUTTI_<name>=<value>, got");
  CHECK_INVALID(tutti_communicator_self(kBadValue, &communicator),
                "tutti_communicator_self: settings: TUTTI_TIMEOUT=soon: expected a number");
  CHECK_INVALID(tutti_communicator_self(NULL, NULL), "communicator" NO_POINTER);
  CHECK(kv == NULL && communicator == NULL);
}

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
