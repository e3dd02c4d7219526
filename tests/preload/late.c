// SPDX-License-Identifier: Apache-2.0
// A program in C that loads a part in Fortran after MPI_Init, for itself alone: late LIBRARY.
#include <dlfcn.h>

#include "verdict.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  void* library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
  int (*sum_of_ranks)(void) = NULL;
  if (library != NULL) *(void**)&sum_of_ranks = dlsym(library, "sum_of_ranks");
  if (sum_of_ranks == NULL) {
    fprintf(stderr, "late: error: %s\n", dlerror());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  verdict("the sum of all ranks", sum_of_ranks() == ranks * (ranks + 1) / 2);
  if (rank == 0) printf("%d cases, %d wrong\n", cases, wrong);
  MPI_Finalize();
  return wrong != 0;
}
