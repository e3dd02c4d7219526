// SPDX-License-Identifier: Apache-2.0
// Buffers of some ranks are in a GPU's memory, of which libcuda.so.1 knows: driver.c stands in for
// it. This program takes PMPI's functions, and counts what MPI carries out.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 6000, KINDS = 12, MOST_RANKS = 16 };

static int rank, ranks, wrong, cases, by_mpi;

/* The functions of MPI itself, which this program's hide. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int PMPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Allreduce)(in, out, count, type, op, comm);
}
int PMPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Bcast)(data, count, type, root, comm);
}
int PMPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Reduce)(in, out, count, type, op, root, comm);
}
int PMPI_Gather(const void* in, int n, MPI_Datatype of, void* out, int m, MPI_Datatype to, int root,
                MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Gather)(in, n, of, out, m, to, root, comm);
}
int PMPI_Allgather(const void* in, int n, MPI_Datatype of, void* out, int m, MPI_Datatype to,
                   MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Allgather)(in, n, of, out, m, to, comm);
}
int PMPI_Allgatherv(const void* in, int n, MPI_Datatype of, void* out, const int* counts,
                    const int* places, MPI_Datatype to, MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Allgatherv)(in, n, of, out, counts, places, to, comm);
}
int PMPI_Scatter(const void* in, int n, MPI_Datatype of, void* out, int m, MPI_Datatype to,
                 int root, MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Scatter)(in, n, of, out, m, to, root, comm);
}
int PMPI_Alltoall(const void* in, int n, MPI_Datatype of, void* out, int m, MPI_Datatype to,
                  MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Alltoall)(in, n, of, out, m, to, comm);
}
int PMPI_Reduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Reduce_scatter)(in, out, counts, type, op, comm);
}
int PMPI_Reduce_scatter_block(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm) {
  by_mpi += comm == MPI_COMM_WORLD;
  return NEXT(PMPI_Reduce_scatter_block)(in, out, n, type, op, comm);
}

/* Pages of their own, as a GPU's memory has. */
static float* memory(int is_on_gpu, size_t count) {
  float* data =
      mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void (*claim)(const void*, size_t) = (void (*)(const void*, size_t))dlsym(RTLD_DEFAULT, "claim");
  if (is_on_gpu && claim != NULL) claim(data, count * sizeof(float));
  return data;
}

/* Call number `call` of `count` floats a rank; `has_gpu`: on this rank. Values are small integers,
   so that sums are exact. */
static void one(int call, int count, int has_gpu) {
  const int root = ranks - 1;
  float* in = memory(has_gpu, (size_t)count * (size_t)ranks);
  float* out = memory(has_gpu, (size_t)count * (size_t)ranks);
  const float all = (float)(ranks * (ranks + 1) / 2);
  float expected = all;
  int first = 0, length = count, counts[MOST_RANKS], places[MOST_RANKS];
  for (int i = 0; i < ranks; ++i) counts[i] = count, places[i] = i * count;
  for (int i = 0; i < count * ranks; ++i) in[i] = (float)(rank + 1);
  switch (call) {
    case 0:
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      memcpy(out, in, sizeof(float) * (size_t)count);
      MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 2:
      memcpy(out, in, sizeof(float) * (size_t)count);
      MPI_Bcast(out, count, MPI_FLOAT, root, MPI_COMM_WORLD);
      expected = (float)(root + 1);
      break;
    case 3:
      MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
      if (rank != root) length = 0;
      break;
    case 4:
      memcpy(out + (size_t)count * (size_t)rank, in, sizeof(float) * (size_t)count);
      MPI_Gather(rank == root ? MPI_IN_PLACE : in, count, MPI_FLOAT, out, count, MPI_FLOAT, root,
                 MPI_COMM_WORLD);
      expected = 1; /* the block of rank 0 */
      if (rank != root) length = 0;
      break;
    case 5:
      memcpy(out + (size_t)count * (size_t)rank, in, sizeof(float) * (size_t)count);
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_FLOAT, MPI_COMM_WORLD);
      first = count * root;
      expected = (float)(root + 1);
      break;
    case 6:
      memcpy(out, in, sizeof(float) * (size_t)count * (size_t)ranks);
      MPI_Reduce_scatter_block(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 7:
      MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 8:
      MPI_Allgatherv(in, count, MPI_FLOAT, out, counts, places, MPI_FLOAT, MPI_COMM_WORLD);
      expected = 1;
      break;
    case 9:
      MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, root, MPI_COMM_WORLD);
      expected = (float)(root + 1);
      break;
    case 10:
      MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD);
      expected = 1;
      break;
    default: /* no bits of a sum depend on who is faster, so that this may be chosen */
      MPI_Allreduce(in, out, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      expected = (float)ranks;
  }
  ++cases;
  for (int i = first; i < first + length; ++i) wrong += out[i] != expected;
}

int main(int argc, char** argv) {
  const int gpus = argc > 1 ? atoi(argv[1]) : 0; /* ranks whose buffers are in a GPU's memory */
  const int sizes[] = {1, 7, 300, MOST};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  /* As CUDA's runtime does, which a program may use after its first collectives. */
  for (int call = 0; call < KINDS; ++call) one(call, 2, 0);
  wrong += by_mpi;
  dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  for (int size = 0; size < 4; ++size) {
    for (int call = 0; call < 2 * KINDS; ++call) one(call / 2, sizes[size], rank < gpus);
  }
  const int own = by_mpi;
  int total[2] = {wrong, 0};
  MPI_Reduce(&wrong, total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d cases, %d by MPI, %d wrong\n", cases, own, total[0]);
  MPI_Finalize();
  return 0;
}
