// SPDX-License-Identifier: Apache-2.0
// Collectives of blocks, operations in C, and messages.
#include <stdint.h>
#include <string.h>

#include "tests.h"

enum { kBlock = 3, kMostRanks = 8, kMost = kBlock * kMostRanks };

static tutti_communicator* world;

static tutti_tensor vector(double* data, const int64_t* count) {
  return (tutti_tensor){.data = data, .shape = count, .ndim = 1, .dtype = TUTTI_FLOAT64};
}

// What `from` has for `to` at a place.
static double element(int from, int to, int64_t i) { return 1000 * from + 10 * to + (double)i; }

static int is_block(const double* data, int from, int to) {
  for (int64_t i = 0; i < kBlock; ++i) {
    if (data[i] != element(from, to, i)) return 0;
  }
  return 1;
}

static void check_blocks(void) {
  const int64_t one = kBlock;
  const int64_t all = (int64_t)kBlock * test_size;
  double input[kMost];
  double output[kMost];
  int64_t counts[kMostRanks];
  const tutti_tensor block = vector(output, &one);
  const tutti_tensor blocks = vector(input, &all);
  const tutti_tensor received = vector(output, &all);
  for (int to = 0; to < test_size; ++to) {
    counts[to] = kBlock;
    for (int64_t i = 0; i < kBlock; ++i) input[kBlock * to + i] = element(test_rank, to, i);
  }

  const int root = test_size - 1;
  CHECK_OK(tutti_communicator_scatter(world, test_rank == root ? &blocks : NULL, &block, root));
  CHECK(is_block(output, root, test_rank));

  memset(output, 0, sizeof output);
  CHECK_OK(tutti_communicator_alltoall(world, &blocks, &received));
  for (int from = 0; from < test_size; ++from)
    CHECK(is_block(output + kBlock * from, from, test_rank));
  memset(output, 0, sizeof output);
  CHECK_OK(tutti_communicator_alltoallv(world, &blocks, counts, &received, counts));
  for (int from = 0; from < test_size; ++from)
    CHECK(is_block(output + kBlock * from, from, test_rank));

  const tutti_tensor first = vector(input, &one);  // element(test_rank, 0, i)
  memset(output, 0, sizeof output);
  CHECK_OK(tutti_communicator_gather(world, &first, test_rank == root ? &received : NULL, root));
  for (int from = 0; from < test_size && test_rank == root; ++from)
    CHECK(is_block(output + kBlock * from, from, 0));
  for (int is_exchanged = 0; is_exchanged < 2; ++is_exchanged) {
    memset(output, 0, sizeof output);
    CHECK_OK(tutti_communicator_allgatherv(world, &first, &received, is_exchanged ? NULL : counts));
    for (int from = 0; from < test_size; ++from) CHECK(is_block(output + kBlock * from, from, 0));
  }
  int64_t found[kMostRanks];
  CHECK_OK(tutti_communicator_exchange_counts(world, 7 * test_rank, found));
  for (int rank = 0; rank < test_size; ++rank) CHECK(found[rank] == 7 * rank);

  for (int64_t i = 0; i < all; ++i) input[i] = (double)i;
  CHECK_OK(tutti_communicator_reduce_scatterv(world, &blocks, &block, counts, TUTTI_AVG));
  CHECK(output[1] == kBlock * test_rank + 1);
}

static void check_messages(void) {
  const int64_t one = kBlock;
  double data[kBlock] = {0};
  const tutti_tensor tensor = vector(data, &one);
  for (int to = 1; to < test_size; ++to) {
    if (test_rank == 0) {
      for (int64_t i = 0; i < kBlock; ++i) data[i] = element(0, to, i);
      CHECK_OK(tutti_communicator_send(world, &tensor, to));
    } else if (test_rank == to) {
      CHECK_OK(tutti_communicator_receive(world, &tensor, 0));
      CHECK(is_block(data, 0, to));
    }
  }
  CHECK_ERROR(tutti_communicator_send(world, &tensor, test_rank), TUTTI_ERROR_INVALID_ARGUMENT,
              "a rank sends no message to itself");
  CHECK_ERROR(tutti_communicator_receive(world, NULL, 0), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_communicator_receive: tensor: expected a pointer, got NULL");
  CHECK_OK(tutti_communicator_barrier(world));
}

// The right operand wins: of all ranks, the last.
static int take_right(void* user_data, const tutti_tensor* left, const tutti_tensor* right) {
  ++*(int*)user_data;
  memcpy(left->data, right->data, (size_t)left->shape[0] * sizeof(double));
  return 0;
}

static int fail(void* user_data, const tutti_tensor* left, const tutti_tensor* right) {
  (void)user_data, (void)left, (void)right;
  return 9;
}

static void check_operations(void) {
  const int64_t one = kMostRanks;
  double input[kMostRanks];
  double output[kMostRanks] = {0};
  int calls = 0;
  for (int i = 0; i < kMostRanks; ++i) input[i] = test_rank;
  const tutti_tensor from = vector(input, &one);
  const tutti_tensor to = vector(output, &one);
  tutti_user_op op = {.name = "right", .combine = take_right, .user_data = &calls};
  for (op.elementwise = 0; op.elementwise < 2; ++op.elementwise) {
    CHECK_OK(tutti_communicator_allreduce_by(world, &from, &to, &op));
    CHECK(output[0] == test_size - 1 && output[kMostRanks - 1] == test_size - 1);
    output[1] = -1;
    CHECK_OK(tutti_communicator_reduce_by(world, &from, test_rank == 0 ? &to : NULL, 0, &op));
    CHECK(output[1] == (test_rank == 0 ? test_size - 1 : -1));
  }
  CHECK(calls > 0 || test_size == 1);
  const int64_t single = kMostRanks / test_size;
  const int64_t whole = single * test_size;
  const tutti_tensor blocks = vector(input, &whole);
  const tutti_tensor block = vector(output, &single);
  op.elementwise = 0;
  output[0] = -1;
  CHECK_OK(tutti_communicator_reduce_scatter_by(world, &blocks, &block, &op));
  CHECK(output[0] == test_size - 1);

  const tutti_user_op failing = {.name = "fails", .combine = fail};
  if (test_size > 1) {
    CHECK_ERROR(tutti_communicator_allreduce_by(world, &from, &to, &failing), TUTTI_ERROR_USER_CODE,
                "rank 0", "allreduce (fails)", "expected it to return 0, got 9");
  }
}

void test_blocks(void) {
  CHECK(test_size <= kMostRanks);
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  check_blocks();
  check_messages();
  check_operations();
  CHECK_OK(tutti_communicator_destroy(world));
}

#define CHECK_ALL(call, ...) CHECK_ERROR(call, TUTTI_ERROR_INVALID_ARGUMENT, __VA_ARGS__)

void test_bad_blocks(void) {
  CHECK_OK(tutti_communicator_world(test_settings, &world));
  const int last = is_last();
  const int64_t one = test_size;
  double data[2][kMostRanks] = {{0}};
  const tutti_tensor in = vector(data[0], &one);
  const tutti_tensor out = vector(data[1], &one);
  const int64_t single = 1;
  const tutti_tensor cell = vector(data[1], &single);
  int64_t counts[kMostRanks];
  for (int rank = 0; rank < test_size; ++rank) counts[rank] = 1;
  if (last) counts[0] = -2;
  CHECK_ALL(tutti_communicator_alltoall(world, last ? NULL : &in, &out),
            "tutti_communicator_alltoall: input: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_alltoallv(world, &in, counts, &out, counts),
            "tutti_communicator_alltoallv: input_counts[0]: expected at least 0, got -2");
  CHECK_ALL(tutti_communicator_reduce_scatterv(world, &in, &cell, last ? NULL : counts, TUTTI_SUM),
            "tutti_communicator_reduce_scatterv: counts: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_allgatherv(world, &in, last ? NULL : &out, NULL),
            "tutti_communicator_allgatherv: output: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_gather(world, &in, NULL, test_size - 1),
            "tutti_communicator_gather: output: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_scatter(world, NULL, &out, 0),
            "tutti_communicator_scatter: input: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_exchange_counts(world, last ? -1 : 1, counts),
            "tutti_communicator_exchange_counts: count: expected at least 0, got -1");
  CHECK_ALL(tutti_communicator_exchange_counts(world, 1, NULL),
            "tutti_communicator_exchange_counts: counts: expected a pointer, got NULL");
  tutti_user_op op = {.name = NULL, .combine = fail};
  CHECK_ALL(tutti_communicator_allreduce_by(world, &in, &out, NULL),
            "tutti_communicator_allreduce_by: op: expected a pointer, got NULL");
  CHECK_ALL(tutti_communicator_allreduce_by(world, &in, &out, &op),
            "tutti_communicator_allreduce_by: op.name: expected a pointer, got NULL");
  op = (tutti_user_op){.name = "none", .combine = NULL};
  CHECK_ALL(tutti_communicator_reduce_by(world, &in, &out, 0, &op),
            "tutti_communicator_reduce_by: op.combine: expected a function, got NULL");
  op = (tutti_user_op){.name = "half", .combine = fail, .elementwise = 2};
  CHECK_ALL(tutti_communicator_reduce_scatter_by(world, &in, &out, &op),
            "tutti_communicator_reduce_scatter_by: op.elementwise: expected 0 or 1, got 2");
  CHECK_OK(tutti_communicator_barrier(world));
  CHECK_OK(tutti_communicator_destroy(world));
}
