// SPDX-License-Identifier: Apache-2.0
// The cases of a program, and whether all ranks were right in them.
#include <mpi.h>
#include <stdio.h>

static int rank, ranks, cases, wrong;

/* Ranks agree by what the library leaves to MPI. */
static void verdict(const char* name, int is_right) {
  int all = 0;
  MPI_Request request;
  MPI_Iallreduce(&is_right, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  ++cases;
  if (all) return;
  ++wrong;
  if (rank == 0) printf("wrong: %s\n", name);
}
