// SPDX-License-Identifier: Apache-2.0
// The communicator's collectives, checked element by element, and GPUs that are not there.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

static const int64_t kCounts[] = {0, 1, 7, 1000, 40001};
enum { kNumCounts = 5, kMostElements = 40001, kMostRanks = 8 };

static tutti_communicator* world;
static char* input;
static char* output;

// 0 to 3, by rank and place: sums and products of four ranks fit into every type.
static double element(int rank, int64_t i) {
  const uint64_t mixed = ((uint64_t)i * 8 + (uint64_t)rank + 1) * UINT64_C(0x9E3779B97F4A7C15);
  return (double)(mixed >> 62);
}

static double reduced(int op, int64_t i) {
  double result = element(0, i);
  for (int rank = 1; rank < test_size; ++rank) {
    const double next = element(rank, i);
    if (op == TUTTI_SUM) result += next;
    if (op == TUTTI_PROD) result *= next;
    if (op == TUTTI_MIN && next < result) result = next;
    if (op == TUTTI_MAX && next > result) result = next;
  }
  return result;
}

static tutti_tensor vector(void* data, const int64_t* count, int dtype) {
  return (tutti_tensor){.data = data, .shape = count, .ndim = 1, .dtype = dtype};
}

static void fill(int dtype, int64_t count) {
  for (int64_t i = 0; i < count; ++i) set(dtype, input, i, element(test_rank, i));
  memset(output, 0x55, (size_t)(count * size_of(dtype)));
}

static int is_untouched(int dtype, int64_t count) {
  for (int64_t i = 0; i < count * size_of(dtype); ++i) {
    if (output[i] != 0x55) return 0;
  }
  return 1;
}

// True if data[i] is the reduction of element first + i.
static int is_reduced(int dtype, const void* data, int op, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (get(dtype, data, i) != reduced(op, first + i)) return 0;
  }
  return 1;
}

static void check_reductions(int dtype, const int64_t* count, int op) {
  const tutti_tensor from = vector(input, count, dtype);
  const tutti_tensor to = vector(output, count, dtype);
  fill(dtype, *count);
  CHECK_OK(tutti_communicator_allreduce(world, &from, &to, op));
  CHECK(is_reduced(dtype, output, op, 0, *count));
  CHECK_OK(tutti_communicator_allreduce(world, &from, &from, op));
  CHECK(is_reduced(dtype, input, op, 0, *count));

  for (int root = 0; root < test_size; root += 2) {
    fill(dtype, *count);
    CHECK_OK(tutti_communicator_reduce(world, &from, test_rank == root ? &to : NULL, root, op));
    CHECK(test_rank == root ? is_reduced(dtype, output, op, 0, *count)
                            : is_untouched(dtype, *count));
  }

  const int64_t whole = *count * test_size;
  const tutti_tensor blocks = vector(input, &whole, dtype);
  fill(dtype, whole);
  CHECK_OK(tutti_communicator_reduce_scatter(world, &blocks, &to, op));
  CHECK(is_reduced(dtype, output, op, *count * test_rank, *count));
}

static void check_copies(int dtype, const int64_t* count) {
  const tutti_tensor from = vector(input, count, dtype);
  const int64_t whole = *count * test_size;
  const tutti_tensor blocks = vector(output, &whole, dtype);
  int wrong = 0;
  fill(dtype, *count);
  CHECK_OK(tutti_communicator_allgather(world, &from, &blocks));
  for (int64_t i = 0; i < whole; ++i) {
    wrong += get(dtype, output, i) != element((int)(i / *count), i % *count);
  }
  for (int root = 0; root < test_size; ++root) {
    fill(dtype, *count);
    CHECK_OK(tutti_communicator_broadcast(world, &from, root));
    for (int64_t i = 0; i < *count; ++i) wrong += get(dtype, input, i) != element(root, i);
  }
  CHECK(wrong == 0);
}

static void check_all(void) {
  for (int dtype = TUTTI_FLOAT16; dtype <= TUTTI_INT64; ++dtype) {
    for (int i = 0; i < kNumCounts; ++i) {
      for (int op = TUTTI_SUM; op <= TUTTI_MAX; ++op) check_reductions(dtype, &kCounts[i], op);
      check_copies(dtype, &kCounts[i]);
    }
  }
}

// The ranks go on until all of them have learnt something, which may take long on a busy machine.
static int learns(tutti_communicator* ranks, const char* told) {
  const int64_t count = kMostElements;
  const int64_t one = 1;
  const tutti_tensor values = vector(input, &count, TUTTI_UINT8);
  for (;;) {
    for (int i = 0; i < 500; ++i) {
      CHECK_OK(tutti_communicator_allreduce(ranks, &values, &values, TUTTI_SUM));
    }
    const char* now = NULL;
    CHECK_OK(tutti_communicator_algorithms(ranks, &now));
    uint8_t is_same = now == NULL || strcmp(now, told) == 0;
    const tutti_tensor verdict = vector(&is_same, &one, TUTTI_UINT8);
    CHECK_OK(tutti_communicator_allreduce(ranks, &verdict, &verdict, TUTTI_MAX));
    if (is_same == 0) return 1;
    if (test_size == 1) return 0;
  }
}

// What calls have learnt comes to the text; what was told before stays.
static void check_algorithms(void) {
  const char* const at_once[] = {"TUTTI_TUNING=at-once", "TUTTI_LOG=quiet", NULL};
  tutti_communicator* fresh = NULL;
  const char* before = NULL;
  CHECK_OK(tutti_communicator_world(at_once, &fresh));
  CHECK_OK(tutti_communicator_algorithms(fresh, &before));
  char* const told = malloc(strlen(before) + 1);
  strcpy(told, before);
  memset(input, 0, kMostElements);
  CHECK(learns(fresh, told) == (test_size > 1));
  CHECK(strcmp(before, told) == 0);
  free(told);
  tutti_communicator_destroy(fresh);
}

void test_collectives(void) {
  const int64_t bytes = kMostElements * 8 * kMostRanks;
  CHECK(test_size <= kMostRanks);
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  char* const memory = malloc((size_t)(2 * bytes));
  input = memory;
  output = memory + bytes;
  check_algorithms();
  check_all();

  tutti_buffer* buffer = NULL;
  tutti_tensor tensor = {0};
  CHECK_OK(tutti_communicator_allocate(world, &bytes, 1, TUTTI_UINT8, &buffer));
  CHECK_OK(tutti_buffer_tensor(buffer, &tensor));
  input = tensor.data;
  check_all();
  CHECK_OK(tutti_buffer_destroy(buffer));
  free(memory);
  CHECK_OK(tutti_communicator_barrier(world));
  CHECK_OK(tutti_communicator_destroy(world));
}

void test_communicator(void) {
  tutti_communicator* self = NULL;
  tutti_topology at = {.rank = 7};
  CHECK_OK(tutti_communicator_self(NULL, &self));
  CHECK_OK(tutti_communicator_topology(self, &at));
  CHECK(at.rank == 0 && at.size == 1 && at.node == 0 && at.num_nodes == 1);
  CHECK(at.local_rank == 0 && at.local_size == 1);
  CHECK_OK(tutti_communicator_destroy(self));

  // Nodes of one rank each.
  static const char* const kSettings[] = {"TUTTI_TIMEOUT=60", "TUTTI_RANKS_PER_NODE=1", NULL};
  tutti_communicator* nodes = NULL;
  CHECK_OK(tutti_communicator_world(kSettings, &nodes));
  CHECK_OK(tutti_communicator_topology(nodes, &at));
  CHECK(at.rank == test_rank && at.size == test_size && at.node == test_rank);
  CHECK(at.num_nodes == test_size && at.local_rank == 0 && at.local_size == 1);
  const char* text = NULL;
  const char* again = NULL;
  CHECK_OK(tutti_communicator_algorithms(nodes, &text));
  CHECK_OK(tutti_communicator_algorithms(nodes, &again));
  CHECK(text == again && strlen(text) > 10 && text[strlen(text) - 1] == '\n');

  tutti_kvstore* kv = NULL;
  const char* type = "";
  CHECK_OK(tutti_kvstore_create_over(nodes, &kv));
  CHECK_OK(tutti_communicator_destroy(nodes));  // the store keeps it
  CHECK_OK(tutti_kvstore_type(kv, &type));
  CHECK(strcmp(type, "dist") == 0);
  init_with(kv, 3, 1);
  push_all(kv, 3, 2);
  CHECK(stores(kv, 3, 2 * test_size));
  CHECK_OK(tutti_kvstore_destroy(kv));
  CHECK_OK(tutti_communicator_destroy(NULL));
}

void test_groups(void) {
  tutti_communicator* all = NULL;
  tutti_communicator* reversed = NULL;
  tutti_communicator* first = NULL;
  tutti_topology at = {.rank = 7};
  int job_rank = -1;
  CHECK_OK(tutti_communicator_world(test_settings, &all));
  CHECK_OK(tutti_communicator_split(all, 5, -test_rank, &reversed));
  CHECK_OK(tutti_communicator_topology(reversed, &at));
  CHECK(at.rank == test_size - 1 - test_rank && at.size == test_size);
  CHECK_OK(tutti_communicator_job_rank(reversed, &job_rank));
  CHECK(job_rank == test_rank);

  const int listed[] = {test_size - 1};  // counted in `reversed`: rank 0 of the job
  CHECK_OK(tutti_communicator_subgroup(reversed, listed, 1, &first));
  CHECK((first != NULL) == (test_rank == 0));
  CHECK_OK(tutti_communicator_destroy(all));

  const int64_t one = 1;
  float value = (float)test_rank + 1;
  const tutti_tensor tensor = vector(&value, &one, TUTTI_FLOAT32);
  CHECK_OK(tutti_communicator_allreduce(reversed, &tensor, &tensor, TUTTI_SUM));
  CHECK(value == (float)(test_size * (test_size + 1)) / 2);
  if (first != NULL) CHECK_OK(tutti_communicator_barrier(first));
  CHECK_OK(tutti_communicator_destroy(first));
  if (test_rank != 0) {  // counted in `reversed`: all but its last
    int later[8];
    for (int i = 0; i < test_size - 1; ++i) later[i] = i;
    tutti_communicator* members = NULL;
    CHECK_OK(tutti_communicator_create_group(reversed, later, test_size - 1, &members));
    CHECK_OK(tutti_communicator_topology(members, &at));
    CHECK(at.rank == test_size - 1 - test_rank && at.size == test_size - 1);
    CHECK_OK(tutti_communicator_barrier(members));
    CHECK_OK(tutti_communicator_destroy(members));
  }
  CHECK_OK(tutti_communicator_destroy(reversed));
}

void test_gpus(void) {
  int count = -1;
  CHECK_OK(tutti_gpu_count(&count));
  CHECK(count >= 0);
  CHECK_ERROR(tutti_gpu_count(NULL), TUTTI_ERROR_INVALID_ARGUMENT, "tutti_gpu_count: count");
  CHECK_ERROR(tutti_gpu_set_stream(9999, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  CHECK_ERROR(tutti_gpu_wait_for_stream(9999, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  CHECK_ERROR(tutti_gpu_let_stream_wait(9999, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  CHECK_ERROR(tutti_gpu_synchronize(9999), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  if (count > 0) {
    CHECK_OK(tutti_gpu_set_stream(0, NULL));
    CHECK_OK(tutti_gpu_wait_for_stream(0, NULL));
    CHECK_OK(tutti_gpu_let_stream_wait(0, NULL));
    CHECK_OK(tutti_gpu_synchronize(0));
  }
}
