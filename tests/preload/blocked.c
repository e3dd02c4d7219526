// SPDX-License-Identifier: Apache-2.0
// Each rank but the first waits in a call of MPI for messages that do not come: blocked CALL...,
// the first in a barrier.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (1 << 20) /* ints of a message that MPI does not keep for its receiver */

static int* buffer;
static MPI_Comm rows;

static int wait_in(const char* call) {
  MPI_Request requests[2];
  MPI_Message message;
  int index, indices[2];
#define IS(name) (strcmp(call, "MPI_" #name) == 0)
  if (IS(Send)) return MPI_Send(buffer, MOST, MPI_INT, 0, 7, rows);
  if (IS(Ssend)) return MPI_Ssend(buffer, 1, MPI_INT, 0, 7, rows);
  if (IS(Recv)) return MPI_Recv(buffer, 1, MPI_INT, 0, 7, rows, MPI_STATUS_IGNORE);
  if (IS(Sendrecv)) {
    return MPI_Sendrecv(buffer, 1, MPI_INT, 0, 7, buffer + 1, 1, MPI_INT, 0, 8, rows,
                        MPI_STATUS_IGNORE);
  }
  if (IS(Sendrecv_replace)) {
    return MPI_Sendrecv_replace(buffer, 1, MPI_INT, 0, 7, 0, 8, rows, MPI_STATUS_IGNORE);
  }
  if (IS(Probe)) return MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, rows, MPI_STATUS_IGNORE);
  if (IS(Mprobe)) return MPI_Mprobe(0, 7, rows, &message, MPI_STATUS_IGNORE);
  if (IS(Comm_dup)) return MPI_Comm_dup(rows, &rows);
  if (IS(Comm_create)) {
    MPI_Group all;
    MPI_Comm_group(rows, &all);
    return MPI_Comm_create(rows, all, &rows);
  }
  if (IS(Comm_split)) return MPI_Comm_split(rows, 0, 0, &rows);
  if (IS(Comm_split_type)) {
    return MPI_Comm_split_type(rows, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &rows);
  }
  if (IS(Cart_create)) {
    const int one = 1;
    return MPI_Cart_create(rows, 1, &one, &one, 0, &rows);
  }
  for (int i = 0; i < 2; ++i) MPI_Irecv(buffer + i, 1, MPI_INT, 0, i, rows, &requests[i]);
  if (IS(Wait)) return MPI_Wait(requests, MPI_STATUS_IGNORE);
  if (IS(Waitall)) return MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  if (IS(Waitany)) return MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  return MPI_Waitsome(2, requests, &index, indices, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &rows);
  MPI_Comm_set_name(rows, "grid rows");
  buffer = calloc(MOST, sizeof *buffer);
  MPI_Barrier(rows);
  if (rank == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (rank < argc) {
    usleep(500000); /* the first is the one whose time is up */
    wait_in(argv[rank]);
  }
  MPI_Finalize();
  return 0;
}
