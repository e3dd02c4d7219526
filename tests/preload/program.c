// SPDX-License-Identifier: Apache-2.0
// A program that knows MPI alone, with the rules that the preloaded library must keep. Each case
// checks its results on all ranks; rank 0 prints "N cases, M wrong".
#include <complex.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verdict.h"

#define MOST (1 << 18)

static double sum_of_ranks(int size) { return size * (size - 1) / 2.0; }

static int sums_are_right(MPI_Comm comm, int count) {
  int own, size, right = 1;
  MPI_Comm_rank(comm, &own);
  MPI_Comm_size(comm, &size);
  double* input = malloc(sizeof(double) * (size_t)(count + 1));
  double* output = malloc(sizeof(double) * (size_t)(count + 1));
  for (int i = 0; i <= count; ++i) input[i] = own + i % 17, output[i] = -1;
  MPI_Allreduce(input, output, count, MPI_DOUBLE, MPI_SUM, comm);
  for (int i = 0; i < count; ++i) right &= output[i] == sum_of_ranks(size) + size * (i % 17);
  right &= output[count] == -1;
  MPI_Allreduce(MPI_IN_PLACE, input, count, MPI_DOUBLE, MPI_MAX, comm);
  for (int i = 0; i < count; ++i) right &= input[i] == size - 1 + i % 17;
  free(input);
  free(output);
  return right;
}

static void allreduce_of_all_sizes(void) {
  const int counts[] = {0, 1, 2, 3, 17, 1000, 4097, 65536, MOST + 1};
  int right = 1;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    right &= sums_are_right(MPI_COMM_WORLD, counts[i]);
  }
  verdict("allreduce of all sizes", right);
}

static void allreduce_of_all_types(void) {
  unsigned least = rank == 0 ? 0x80000000U : 1U, unsigned_result = 0;
  MPI_Allreduce(&least, &unsigned_result, 1, MPI_UNSIGNED, MPI_MAX, MPI_COMM_WORLD);
  int right = unsigned_result == 0x80000000U;
#ifdef MPICH_VERSION
  right = 1; /* MPICH 4.0 compares them as if they had a sign. */
#endif
  double complex number = rank + I, number_result = 0;
  MPI_Allreduce(&number, &number_result, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
  right &= number_result == sum_of_ranks(ranks) + ranks * I;
  number = I, number_result = 1;
  MPI_Allreduce(&number, &number_result, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
  for (int i = 0; i < ranks; ++i) number_result /= I;
  right &= cabs(number_result - 1) < 1e-12;
  short small = (short)rank, small_result = 0;
  MPI_Allreduce(&small, &small_result, 1, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD);
  right &= small_result == (short)sum_of_ranks(ranks);
  int bits = 1 << rank, bits_result = 0;
  MPI_Allreduce(&bits, &bits_result, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  right &= bits_result == (1 << ranks) - 1;
  struct {
    double value;
    int place;
  } pair = {(rank * 7) % ranks, rank}, pair_result;
  MPI_Allreduce(&pair, &pair_result, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  right &= (pair_result.place * 7) % ranks == (int)pair_result.value;
  verdict("allreduce of all types", right);
}

static void reduce_to_each_root(void) {
  int right = 1;
  for (int root = 0; root < ranks; ++root) {
    long value = rank + 1, result = -1;
    MPI_Reduce(&value, rank == root ? &result : NULL, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
    right &= result == (rank == root ? ranks * (ranks + 1) / 2 : -1);
    const void* input = rank == root ? MPI_IN_PLACE : &value;
    MPI_Reduce(input, &value, 1, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
    right &= value == (rank == root ? ranks : rank + 1);
  }
  verdict("reduce to each root", right);
}

/* The root gives rows of doubles, others take bytes, or every other double of twice as many. */
static void broadcast_of_other_datatypes(void) {
  MPI_Datatype every_other;
  MPI_Type_vector(100, 1, 2, MPI_DOUBLE, &every_other);
  MPI_Type_commit(&every_other);
  int right = 1;
  for (int root = 0; root < ranks; ++root) {
    double values[200];
    for (int i = 0; i < 200; ++i) values[i] = rank == root ? i : -1;
    if (rank == root) {
      MPI_Bcast(values, 100, MPI_DOUBLE, root, MPI_COMM_WORLD);
    } else if (rank % 2 == 0) {
      MPI_Bcast(values, 800, MPI_BYTE, root, MPI_COMM_WORLD);
      for (int i = 0; i < 100; ++i) right &= values[i] == i;
      right &= values[100] == -1;
    } else {
      MPI_Bcast(values, 1, every_other, root, MPI_COMM_WORLD);
      for (int i = 0; i < 200; ++i) right &= values[i] == (i % 2 == 0 ? i / 2 : -1);
    }
  }
  MPI_Type_free(&every_other);
  verdict("broadcast of other datatypes", right);
}

// Each block of the rank's own count says whose it is and for whom.
static int block(int from, int to, int i) { return from * 1000 + to * 100 + i % 50; }

static int gathers_are_right(int count) {
  int right = 1;
  int* own = malloc(sizeof(int) * (size_t)(count + 1));
  int* all = malloc(sizeof(int) * (size_t)(count * ranks + 1));
  for (int i = 0; i < count; ++i) own[i] = block(rank, 0, i);
  all[count * ranks] = -1;
  MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < count * ranks; ++i) right &= all[i] == block(i / count, 0, i % count);
  for (int i = 0; i < count * ranks; ++i)
    all[i] = i / count == rank ? block(rank, 1, i % count) : 0;
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < count * ranks; ++i) right &= all[i] == block(i / count, 1, i % count);
  const int root = ranks - 1;
  const int is_root = rank == root;
  memset(all, 0, sizeof(int) * (size_t)(count * ranks));
  MPI_Gather(own, count, MPI_INT, is_root ? all : NULL, is_root ? count * 4 : -1,
             is_root ? MPI_BYTE : MPI_DATATYPE_NULL, root, MPI_COMM_WORLD);
  for (int i = 0; i < count * ranks && is_root; ++i) {
    right &= all[i] == block(i / count, 0, i % count);
  }
  MPI_Gather(is_root ? MPI_IN_PLACE : own, count, MPI_INT, all, count, MPI_INT, root,
             MPI_COMM_WORLD);
  for (int i = 0; i < count * ranks && is_root; ++i) {
    right &= all[i] == block(i / count, 0, i % count);
  }
  MPI_Scatter(all, count, MPI_INT, is_root ? MPI_IN_PLACE : own, count, MPI_INT, root,
              MPI_COMM_WORLD);
  for (int i = 0; i < count; ++i) right &= own[i] == block(rank, 0, i);
  right &= all[count * ranks] == -1;
  free(own);
  free(all);
  return right;
}

static void gathers_of_all_sizes(void) {
  int right = 1;
  for (int count = 1; count < 100000; count = count * 7 + 1) right &= gathers_are_right(count);
  verdict("gathers of all sizes", right);
}

// Blocks of rank r have r elements, in the reverse order and with gaps, as every other int.
static void blocks_of_other_sizes(void) {
  int counts[64], places[64], own[64], all[4096], pieces[4096], right = 1, at = 0;
  for (int r = ranks - 1; r >= 0; --r) {
    counts[r] = r;
    places[r] = at;
    at += r + 1;
  }
  MPI_Datatype sparse;
  MPI_Type_create_resized(MPI_INT, 0, 8, &sparse);
  MPI_Type_commit(&sparse);
  for (int i = 0; i < rank; ++i) own[i] = block(rank, 2, i);
  for (int pass = 0; pass < 2; ++pass) {
    const int wide = rank % 2 == pass ? 2 : 1;
    for (int i = 0; i < 4096; ++i) all[i] = -1;
    MPI_Allgatherv(own, rank, MPI_INT, all, counts, places, wide == 2 ? sparse : MPI_INT,
                   MPI_COMM_WORLD);
    for (int r = 0; r < ranks; ++r) {
      for (int i = 0; i < r; ++i) right &= all[wide * (places[r] + i)] == block(r, 2, i);
      right &= all[wide * (places[r] + r)] == -1;
    }
  }
  for (int i = 0, r = 0; r < ranks; ++r) {
    for (int j = 0; j < r; ++j) pieces[i++] = rank + block(r, 0, j);
  }
  MPI_Reduce_scatter(pieces, all, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < rank; ++i) {
    right &= all[i] == ranks * block(rank, 0, i) + (int)sum_of_ranks(ranks);
  }
  MPI_Type_free(&sparse);
  verdict("blocks of other sizes", right);
}

static void exchanges_of_blocks(void) {
  int right = 1;
  for (int count = 1; count < 20000; count = count * 9 + 1) {
    const size_t bytes = sizeof(int) * (size_t)(count * ranks);
    int *given = malloc(bytes), *got = malloc(bytes);
    for (int i = 0; i < count * ranks; ++i) given[i] = block(rank, i / count, i % count);
    MPI_Alltoall(given, count, MPI_INT, got, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; ++i) right &= got[i] == block(i / count, rank, i % count);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, count, MPI_INT, MPI_COMM_WORLD);
    right &= memcmp(given, got, bytes) == 0;
    MPI_Reduce_scatter_block(given, got, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) right &= got[i] == block(ranks - 1, rank, i);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, given, count, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) right &= given[i] == block(0, rank, i);
    free(given);
    free(got);
  }
  verdict("exchanges of blocks", right);
}

// Rank r has r + 1 elements for each rank; what only pairs of ranks know, or the root.
static void blocks_that_pairs_know(void) {
  int counts[64], places[64], same[64], same_places[64], right = 1, at = 0, before = -1;
  int* given = calloc((size_t)(ranks * (rank + 1)), sizeof(int));
  int* got = calloc((size_t)(ranks * (ranks + 1)), sizeof(int));
  for (int r = 0; r < ranks; ++r) {
    counts[r] = r + 1, places[r] = at, at += r + 1;
    same[r] = rank + 1, same_places[r] = r * (rank + 1);
    for (int i = 0; i <= rank; ++i) given[same_places[r] + i] = block(rank, r, i);
  }
  MPI_Alltoallv(given, same, same_places, MPI_INT, got, counts, places, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i <= r; ++i) right &= got[places[r] + i] == block(r, rank, i);
  }
  const int root = ranks / 2;
  memset(got, 0, sizeof(int) * (size_t)at);
  MPI_Gatherv(given, rank + 1, MPI_INT, got, rank == root ? counts : NULL, places, MPI_INT, root,
              MPI_COMM_WORLD);
  for (int r = 0; r < ranks && rank == root; ++r) {
    for (int i = 0; i <= r; ++i) right &= got[places[r] + i] == block(r, 0, i);
  }
  memset(given, 0, sizeof(int) * (size_t)(rank + 1));
  MPI_Scatterv(got, rank == root ? counts : NULL, places, MPI_INT, given, rank + 1, MPI_INT, root,
               MPI_COMM_WORLD);
  for (int i = 0; i <= rank; ++i) right &= given[i] == block(rank, 0, i);
  MPI_Exscan(&rank, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  right &= before == (rank == 0 ? -1 : (int)sum_of_ranks(rank));
  free(given);
  free(got);
  verdict("blocks that pairs know", right);
}

// Long enough for the ranks to have chosen, and to be in step after it.
static void many_calls_of_a_kind(void) {
  int right = 1;
  for (int i = 0; i < 150; ++i) {
    int value = rank + i, sum = 0, from = rank == i % ranks ? i : -1, least = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(&from, 1, MPI_INT, i % ranks, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&value, &least, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    right &= sum == ranks * i + (int)sum_of_ranks(ranks) && from == i;
    right &= rank != 0 || least == i;
    right &= gathers_are_right(3);
  }
  verdict("many calls of a kind", right);
}

static void communicators_that_come_and_go(void) {
  int right = 1;
  for (int i = 0; i < 300; ++i) {
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % (1 + i % 3), -rank, &part);
    right &= sums_are_right(part, i % 5);
    if (i % 2 == 0) {
      MPI_Comm copy;
      MPI_Comm_dup(part, &copy);
      right &= sums_are_right(copy, 3);
      MPI_Comm_free(&copy);
    }
    MPI_Comm_free(&part);
  }
  verdict("communicators that come and go", right);
}

/* Rank 0 comes to the barrier only when its message has gone, which its receiver waits in. */
static void messages_beside_a_barrier(void) {
  static char message[MOST * 16];
  MPI_Request request = MPI_REQUEST_NULL;
  memset(message, rank == 0 ? 'x' : '-', sizeof message);
  if (rank == 1) MPI_Irecv(message, sizeof message, MPI_CHAR, 0, 5, MPI_COMM_WORLD, &request);
  if (rank == 0 && ranks > 1) MPI_Send(message, sizeof message, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  verdict("messages beside a barrier", rank > 1 || message[sizeof message - 1] == 'x');
}

static int copies;
static int count_copy(MPI_Comm comm, int key, void* extra, void* in, void* out, int* flag) {
  (void)comm, (void)key, (void)extra;
  *(void**)out = in;
  *flag = 1;
  ++copies;
  return MPI_SUCCESS;
}

static void attributes_are_the_programs(void) {
  int key;
  MPI_Comm first, second;
  MPI_Comm_create_keyval(count_copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  MPI_Comm_dup(MPI_COMM_WORLD, &first);
  MPI_Comm_set_attr(first, key, &copies);
  MPI_Comm_set_name(first, "twins");
  int right = sums_are_right(first, 2) && copies == 0;
  MPI_Comm_dup(first, &second);
  right &= sums_are_right(second, 2) && copies == 1;
  MPI_Comm_free(&first);
  MPI_Comm_free(&second);
  MPI_Comm_free_keyval(&key);
  verdict("attributes are the program's", right);
}

static void errors_are_returned(void) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  int value = 1, class = MPI_SUCCESS;
  MPI_Error_class(MPI_Bcast(&value, 1, MPI_INT, ranks, copy), &class);
  int right = class == MPI_ERR_ROOT;
  MPI_Error_class(MPI_Allreduce(&value, &value, -1, MPI_INT, MPI_SUM, copy), &class);
  right &= class == MPI_ERR_COUNT || class == MPI_ERR_BUFFER;
  MPI_Comm_free(&copy);
  verdict("errors are returned", right);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  allreduce_of_all_sizes();
  allreduce_of_all_types();
  reduce_to_each_root();
  broadcast_of_other_datatypes();
  gathers_of_all_sizes();
  blocks_of_other_sizes();
  exchanges_of_blocks();
  blocks_that_pairs_know();
  many_calls_of_a_kind();
  communicators_that_come_and_go();
  messages_beside_a_barrier();
  attributes_are_the_programs();
  errors_are_returned();
  if (rank == 0) printf("%d cases, %d wrong\n", cases, wrong);
  MPI_Finalize();
  return wrong != 0;
}
