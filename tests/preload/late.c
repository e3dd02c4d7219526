// SPDX-License-Identifier: Apache-2.0
// A program in C that loads a part in Fortran after MPI_Init, for itself alone: late LIBRARY.
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int ranks, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  void* library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
  int (*sum_of_ranks)(void) = NULL;
  if (library != NULL) *(void**)&sum_of_ranks = dlsym(library, "sum_of_ranks");
  if (sum_of_ranks == NULL) {
    fprintf(stderr, "late: error: %s\n", dlerror());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  sum = sum_of_ranks();
  printf("%s\n", sum == ranks * (ranks + 1) / 2 ? "right" : "wrong");
  MPI_Finalize();
  return 0;
}
