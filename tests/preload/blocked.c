// SPDX-License-Identifier: Apache-2.0
// Each rank but the first waits in a call of MPI for the others: blocked CALL..., the first in a
// barrier.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (1 << 20) /* ints of a message that MPI does not keep for its receiver */

static int* buffer;
static MPI_Comm rows;
static MPI_Win window_of_all;

static int wait_in(const char* call) {
  MPI_Request requests[2];
  MPI_Message message;
  int index, indices[2];
  const int one = 1;
#define IS(name) (strcmp(call, "MPI_" #name) == 0)
  if (IS(Send)) return MPI_Send(buffer, MOST, MPI_INT, 0, 7, rows);
  if (IS(Ssend)) return MPI_Ssend(buffer, 1, MPI_INT, 0, 7, rows);
  if (IS(Recv)) return MPI_Recv(buffer, 1, MPI_INT, 0, 7, rows, MPI_STATUS_IGNORE);
  if (IS(Sendrecv)) {
    return MPI_Sendrecv(buffer, 1, MPI_INT, MPI_PROC_NULL, 7, buffer + 1, 1, MPI_INT, 0, 8, rows,
                        MPI_STATUS_IGNORE);
  }
  if (IS(Sendrecv_replace)) {
    return MPI_Sendrecv_replace(buffer, 1, MPI_INT, 0, 7, 0, 8, rows, MPI_STATUS_IGNORE);
  }
  if (IS(Probe)) return MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (IS(Mprobe)) return MPI_Mprobe(0, 7, rows, &message, MPI_STATUS_IGNORE);
  if (IS(Comm_dup)) return MPI_Comm_dup(rows, &rows);
  if (IS(Comm_dup_with_info)) return MPI_Comm_dup_with_info(rows, MPI_INFO_NULL, &rows);
  if (IS(Cart_sub)) return MPI_Cart_sub(rows, &one, &rows);
  if (IS(Cart_create)) return MPI_Cart_create(rows, 1, &one, &one, 0, &rows);
  if (IS(Win_fence)) return MPI_Win_fence(0, window_of_all);
  if (IS(Comm_create)) {
    MPI_Group all;
    MPI_Comm_group(rows, &all);
    return MPI_Comm_create(rows, all, &rows);
  }
  if (IS(Comm_split)) return MPI_Comm_split(rows, 0, 0, &rows);
  if (IS(Comm_split_type)) {
    return MPI_Comm_split_type(rows, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &rows);
  }
  for (int i = 0; i < 2; ++i) MPI_Irecv(buffer + i, 1, MPI_INT, 0, i, rows, &requests[i]);
  if (IS(Wait)) return MPI_Wait(requests, MPI_STATUS_IGNORE);
  if (IS(Waitall)) return MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  if (IS(Waitany)) return MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  return MPI_Waitsome(2, requests, &index, indices, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  const int periodic = 1;
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &rows);
  MPI_Comm_set_name(rows, "grid rows");
  MPI_Barrier(rows);
  buffer = calloc(MOST, sizeof *buffer);
  MPI_Win_create(buffer, sizeof *buffer, 1, MPI_INFO_NULL, rows, &window_of_all);
  if (rank == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (rank < argc) {
    usleep(500000); /* the first is the one whose time is up */
    wait_in(argv[rank]);
  }
  MPI_Finalize();
  return 0;
}
