// SPDX-License-Identifier: Apache-2.0
// The functions of MPI 4 with counts of the type MPI_Count, with random values that every rank
// knows of all ranks. Rank 0 prints "N cases, M wrong"; of an older MPI "0 cases, 0 wrong".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION < 4

int main(void) {
  printf("0 cases, 0 wrong\n");
  return 0;
}

#else

#include "verdict.h"

typedef long long Item;

/* Any count, where MPI does not read it. */
static const MPI_Count any = (MPI_Count)1 << 40;

#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
/* MPICH 4.0.2's own crashes from 8,000 bytes on. */
static const MPI_Count most_in_place = 100;
#else
static const MPI_Count most_in_place = (MPI_Count)1 << 40;
#endif

static int seed;
static MPI_Datatype sparse; /* an item, and a gap of the same size */

/* Random; what one rank has for another. */
static Item item(int from, int to, MPI_Count i) {
  unsigned long long bits = (unsigned long long)i * 0x9E3779B97F4A7C15U;
  bits += (unsigned long long)(from * 64 + to) * 0xC2B2AE3D27D4EB4FU + (unsigned)seed;
  bits = (bits ^ bits >> 31) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ bits >> 29) * 0x94D049BB133111EBU;
  return (Item)(bits ^ bits >> 32);
}

/* Memory for items: one after the other, or with gaps, in turn. Ranks have other ones, unless all
 * are to be alike. */
typedef struct {
  Item* data;
  MPI_Count count, step;
  MPI_Datatype type;
} Memory;

enum { kUntouched = -1 };

static Memory memory_with(MPI_Count count, MPI_Count step) {
  Memory memory = {NULL, count, step, step == 1 ? MPI_LONG_LONG : sparse};
  memory.data = malloc(sizeof(Item) * (size_t)(count * step + 1));
  for (MPI_Count i = 0; i <= count * step; ++i) memory.data[i] = kUntouched;
  return memory;
}

static Memory memory_of(MPI_Count count) { return memory_with(count, 1 + (rank + seed) % 2); }

static Memory alike_memory_of(MPI_Count count) { return memory_with(count, 1 + seed % 2); }

static void fill(Memory memory, MPI_Count first, MPI_Count count, int from, int to) {
  for (MPI_Count i = 0; i < count; ++i) memory.data[(first + i) * memory.step] = item(from, to, i);
}

static Memory filled(MPI_Count count, int to) {
  Memory memory = memory_of(count);
  fill(memory, 0, count, rank, to);
  return memory;
}

static int holds(Memory memory, MPI_Count first, MPI_Count count, int from, int to) {
  int right = 1;
  for (MPI_Count i = 0; i < count; ++i) {
    right &= memory.data[(first + i) * memory.step] == item(from, to, i);
  }
  return right;
}

/* Frees it, too. What lies between the items and behind them is as it was. */
static int ends_whole(Memory memory) {
  int right = memory.data[memory.count * memory.step] == kUntouched;
  for (MPI_Count i = 1; i < memory.count * memory.step; i += 2) {
    right &= memory.step == 1 || memory.data[i] == kUntouched;
  }
  free(memory.data);
  return right;
}

static int moves_from_a_root_are_right(MPI_Count count, int root) {
  const int is_root = rank == root;
  Memory one = is_root ? filled(count, 0) : memory_of(count);
  MPI_Bcast_c(one.data, count, one.type, root, MPI_COMM_WORLD);
  int right = holds(one, 0, count, root, 0);
  right &= ends_whole(one);

  Memory all = memory_of(count * ranks);
  for (int to = 0; to < ranks && is_root; ++to) fill(all, to * count, count, root, to);
  Memory own = memory_of(count);
  MPI_Scatter_c(is_root ? all.data : NULL, is_root ? count : any, all.type, own.data, count,
                own.type, root, MPI_COMM_WORLD);
  right &= holds(own, 0, count, root, rank);
  memset(own.data, 0, sizeof(Item) * (size_t)(count * own.step));
  MPI_Scatter_c(all.data, is_root ? count : any, all.type, is_root ? MPI_IN_PLACE : own.data,
                is_root ? any : count, own.type, root, MPI_COMM_WORLD);
  right &= is_root || holds(own, 0, count, root, rank);
  free(own.data);
  return right & ends_whole(all);
}

static int moves_to_a_root_are_right(MPI_Count count, int root) {
  const int is_root = rank == root;
  int right = 1;
  Memory own = filled(count, 1), all = memory_of(count * ranks);
  MPI_Gather_c(own.data, count, own.type, is_root ? all.data : NULL, is_root ? count : any,
               all.type, root, MPI_COMM_WORLD);
  for (int from = 0; from < ranks && is_root; ++from) {
    right &= holds(all, from * count, count, from, 1);
  }
  for (int from = 0; from < ranks; ++from) {
    if (from == rank) fill(all, from * count, count, rank, 2);
  }
  fill(own, 0, count, rank, 2);
  MPI_Gather_c(is_root ? MPI_IN_PLACE : own.data, is_root ? any : count, own.type, all.data,
               is_root ? count : any, all.type, root, MPI_COMM_WORLD);
  for (int from = 0; from < ranks && is_root; ++from) {
    right &= holds(all, from * count, count, from, 2);
  }
  return right & ends_whole(own) & ends_whole(all);
}

static int moves_to_all_are_right(MPI_Count count) {
  int right = 1;
  Memory own = filled(count, 3), all = memory_of(count * ranks);
  MPI_Allgather_c(own.data, count, own.type, all.data, count, all.type, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) right &= holds(all, from * count, count, from, 3);
  fill(all, rank * count, count, rank, 4);
  MPI_Allgather_c(MPI_IN_PLACE, any, MPI_DATATYPE_NULL, all.data, count, all.type, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) right &= holds(all, from * count, count, from, 4);
  right &= ends_whole(own);

  Memory given = memory_of(count * ranks);
  for (int to = 0; to < ranks; ++to) fill(given, to * count, count, rank, to);
  MPI_Alltoall_c(given.data, count, given.type, all.data, count, all.type, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) right &= holds(all, from * count, count, from, rank);
  MPI_Alltoall_c(MPI_IN_PLACE, any, MPI_DATATYPE_NULL, all.data, count, all.type, MPI_COMM_WORLD);
  for (int to = 0; to < ranks; ++to) right &= holds(all, to * count, count, rank, to);
  return right & ends_whole(given) & ends_whole(all);
}

/* Each rank's items, in the order of ranks from the first up to one of them. */
static Item reduced(MPI_Op op, int up_to, int to, MPI_Count i) {
  unsigned long long result = (unsigned long long)item(0, to, i);
  for (int from = 1; from <= up_to; ++from) {
    const Item next = item(from, to, i);
    if (op == MPI_SUM) result += (unsigned long long)next;
    if (op == MPI_BXOR) result ^= (unsigned long long)next;
    if (op == MPI_MAX && next > (Item)result) result = (unsigned long long)next;
  }
  return (Item)result;
}

static int are_reduced(const Item* data, MPI_Count count, MPI_Op op, int up_to, int to) {
  int right = data[count] == kUntouched;
  for (MPI_Count i = 0; i < count; ++i) right &= data[i] == reduced(op, up_to, to, i);
  return right;
}

/* Room for as many items as blocks have, and one more; a block of this rank's for each. */
static Item* blocks_for_all(const MPI_Count* counts) {
  MPI_Count all = 1;
  for (int to = 0; to < ranks; ++to) all += counts[to];
  Item* data = malloc(sizeof(Item) * (size_t)all);
  data[all - 1] = kUntouched;
  for (MPI_Count to = 0, at = 0; to < ranks; ++to) {
    for (MPI_Count i = 0; i < counts[to]; ++i) data[at++] = item(rank, (int)to, i);
  }
  return data;
}

static Item* items_for(int to, MPI_Count count) {
  Item* data = malloc(sizeof(Item) * (size_t)(count + 1));
  for (MPI_Count i = 0; i < count; ++i) data[i] = item(rank, to, i);
  data[count] = kUntouched;
  return data;
}

static int reductions_are_right(MPI_Count count, MPI_Op op) {
  int right = 1;
  const int last = ranks - 1;
  Item *given = items_for(5, count), *got = items_for(6, count);
  MPI_Allreduce_c(given, got, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= are_reduced(got, count, op, last, 5);
  for (int root = 0; root < ranks; ++root) {
    Item* own = items_for(7, count);
    MPI_Reduce_c(given, rank == root ? got : NULL, count, MPI_LONG_LONG, op, root, MPI_COMM_WORLD);
    right &= rank != root || are_reduced(got, count, op, last, 5);
    const int in_place = rank == root && count <= most_in_place;
    Item* result = in_place ? own : got;
    MPI_Reduce_c(in_place ? MPI_IN_PLACE : own, result, count, MPI_LONG_LONG, op, root,
                 MPI_COMM_WORLD);
    right &= rank != root || are_reduced(result, count, op, last, 7);
    free(own);
  }
  MPI_Scan_c(given, got, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= are_reduced(got, count, op, rank, 5);
  MPI_Exscan_c(given, got, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= rank == 0 || are_reduced(got, count, op, rank - 1, 5);
  MPI_Allreduce_c(MPI_IN_PLACE, given, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= are_reduced(given, count, op, last, 5);
  free(given);
  free(got);
  return right;
}

/* Blocks of one size, and of sizes that differ: every second rank has none. MPICH's fails in place
 * where a block is larger than those before it. */
static int reductions_of_blocks_are_right(MPI_Count count, MPI_Op op) {
  MPI_Count same[64], counts[64];
  int right = 1;
  for (int to = 0; to < ranks; ++to) {
    same[to] = count, counts[to] = to % 2 == 0 ? count + ranks - to : 0;
  }
  Item *given = blocks_for_all(same), *got = items_for(0, count);
  MPI_Reduce_scatter_block_c(given, got, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= are_reduced(got, count, op, ranks - 1, rank);
  MPI_Reduce_scatter_block_c(MPI_IN_PLACE, given, count, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  if (count != 0) given[count] = kUntouched;
  right &= are_reduced(given, count, op, ranks - 1, rank);
  free(given);
  free(got);

  given = blocks_for_all(counts), got = items_for(0, counts[rank]);
  MPI_Reduce_scatter_c(given, got, counts, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  right &= are_reduced(got, counts[rank], op, ranks - 1, rank);
  MPI_Reduce_scatter_c(MPI_IN_PLACE, given, counts, MPI_LONG_LONG, op, MPI_COMM_WORLD);
  for (MPI_Count i = 0; i < counts[rank]; ++i) {
    right &= given[i] == reduced(op, ranks - 1, rank, i);
  }
  free(given);
  free(got);
  return right;
}

/* Rank r has count + r items for each rank. What is received has one datatype on all ranks, because
 * MPICH's allgatherv fails where extents differ. */
static int moves_of_other_sizes_are_right(MPI_Count count) {
  MPI_Count counts[64], same[64];
  MPI_Aint places[64], same_places[64], bytes[64], same_bytes[64];
  MPI_Datatype types[64], got_types[64];
  MPI_Count at = 0;
  for (int from = 0; from < ranks; ++from) {
    counts[from] = count + from, places[from] = (MPI_Aint)at, at += counts[from];
    same[from] = count + rank, same_places[from] = (MPI_Aint)(from * same[from]);
  }
  Memory given = memory_of(ranks * (count + rank)), got = alike_memory_of(at);
  for (int to = 0; to < ranks; ++to) {
    fill(given, same_places[to], count + rank, rank, to);
    types[to] = given.type, got_types[to] = got.type;
    same_bytes[to] = same_places[to] * (MPI_Aint)(sizeof(Item) * (size_t)given.step);
    bytes[to] = places[to] * (MPI_Aint)(sizeof(Item) * (size_t)got.step);
  }
  int right = 1;
  MPI_Alltoallv_c(given.data, same, same_places, given.type, got.data, counts, places, got.type,
                  MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) {
    right &= holds(got, places[from], counts[from], from, rank);
    if (counts[from] > 0) got.data[places[from] * got.step] = 0;
  }
  MPI_Alltoallw_c(given.data, same, same_bytes, types, got.data, counts, bytes, got_types,
                  MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) {
    right &= holds(got, places[from], counts[from], from, rank);
  }
  MPI_Allgatherv_c(given.data, same[0], given.type, got.data, counts, places, got.type,
                   MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) {
    right &= holds(got, places[from], counts[from], from, 0);
  }
  const int root = ranks - 1;
  for (int to = 0; to < ranks && rank == root; ++to) {
    fill(got, places[to], counts[to], rank, to);
  }
  MPI_Scatterv_c(got.data, rank == root ? counts : NULL, places, got.type, given.data, same[0],
                 given.type, root, MPI_COMM_WORLD);
  right &= holds(given, 0, same[0], root, rank);
  MPI_Gatherv_c(given.data, same[0], given.type, got.data, rank == root ? counts : NULL, places,
                got.type, root, MPI_COMM_WORLD);
  for (int from = 0; from < ranks && rank == root; ++from) {
    right &= holds(got, places[from], counts[from], root, from);
  }
  return right & ends_whole(given) & ends_whole(got);
}

static void all_functions(MPI_Count count) {
  const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR};
  int from_root = 1, to_root = 1, reductions = 1, of_blocks = 1;
  ++seed;
  for (int root = 0; root < ranks; ++root) {
    from_root &= moves_from_a_root_are_right(count, root);
    to_root &= moves_to_a_root_are_right(count, root);
  }
  verdict("moves from a root", from_root);
  verdict("moves to a root", to_root);
  verdict("moves to all", moves_to_all_are_right(count));
  verdict("moves of other sizes", moves_of_other_sizes_are_right(count));
  for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
    reductions &= reductions_are_right(count, ops[i]);
    of_blocks &= reductions_of_blocks_are_right(count, ops[i]);
  }
  verdict("reductions", reductions);
  verdict("reductions of blocks", of_blocks);
}

/* Ranks may call either function, with the same result. */
static void beside_small_counts(void) {
  const int is_large = rank % 2;
  Item value = item(rank, 0, 0), sum = 0, part = 0;
  int right = 1;
  for (int i = 0; i < 150; ++i) {
    Item given = rank == 0 ? i : -1;
    if (is_large) {
      MPI_Allreduce_c(&value, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
      MPI_Bcast_c(&given, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
      MPI_Bcast_c(&given, 0, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
      MPI_Scan_c(&value, &part, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    } else {
      MPI_Allreduce(&value, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
      MPI_Bcast(&given, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
      MPI_Bcast(&given, 0, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
      MPI_Scan(&value, &part, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    right &= given == i && sum == reduced(MPI_SUM, ranks - 1, 0, 0);
    right &= part == reduced(MPI_SUM, rank, 0, 0);
  }
  verdict("beside small counts", right);
}

/* More items than an int has, of which none has a byte; in a broadcast others may have none. */
static void counts_that_are_no_ints(void) {
  const MPI_Count many = ((MPI_Count)1 << 33) + 5;
  const int is_root = rank == 0;
  MPI_Datatype nothing;
  Item from = kUntouched, to = kUntouched;
  MPI_Type_contiguous(0, MPI_LONG_LONG, &nothing);
  MPI_Type_commit(&nothing);
  MPI_Bcast_c(&to, many, nothing, 0, MPI_COMM_WORLD);
  MPI_Bcast_c(&to, is_root ? many : 0, nothing, 0, MPI_COMM_WORLD);
  MPI_Gather_c(&from, many, nothing, &to, many, nothing, 0, MPI_COMM_WORLD);
  MPI_Scatter_c(&from, many, nothing, &to, many, nothing, 0, MPI_COMM_WORLD);
  MPI_Allgather_c(&from, many, nothing, &to, many, nothing, MPI_COMM_WORLD);
  MPI_Alltoall_c(&from, many, nothing, &to, many, nothing, MPI_COMM_WORLD);
  MPI_Type_free(&nothing);
  verdict("counts that are no ints", from == kUntouched && to == kUntouched);
}

int main(int argc, char** argv) {
  const MPI_Count counts[] = {0, 1, 2, 7, 1000, 4099, (1 << 17) + 3};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Type_create_resized(MPI_LONG_LONG, 0, 2 * sizeof(Item), &sparse);
  MPI_Type_commit(&sparse);
  for (int pass = 0; pass < 2; ++pass) { /* ranks change their datatypes */
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) all_functions(counts[i]);
  }
  for (int pass = 0; pass < 20; ++pass) all_functions(3); /* longer than the library chooses */
  beside_small_counts();
  counts_that_are_no_ints();
  MPI_Type_free(&sparse);
  if (rank == 0) printf("%d cases, %d wrong\n", cases, wrong);
  MPI_Finalize();
  return wrong != 0;
}

#endif
