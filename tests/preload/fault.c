// SPDX-License-Identifier: Apache-2.0
// One rank goes wrong: fault absent|goes-on|gathered|differs|returned|settings.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, ranks, value = 1, results[2] = {0, 0};
  const char* fault = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm rows;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &rows);
  MPI_Comm_set_name(rows, "grid rows");
  MPI_Barrier(rows);
  const int is_last = rank == ranks - 1;
  if (strcmp(fault, "absent") == 0) {
    if (is_last) sleep(60);
    MPI_Allreduce(&value, results, 1, MPI_INT, MPI_SUM, rows);
  } else if (strcmp(fault, "goes-on") == 0) { /* beyond a deadline, on all other ranks */
    MPI_Comm_set_errhandler(rows, MPI_ERRORS_RETURN);
    if (is_last) sleep(5);
    for (int i = 0; i < 3; ++i) MPI_Allreduce(&value, results, 1, MPI_INT, MPI_SUM, rows);
  } else if (strcmp(fault, "gathered") == 0) {
    const int counts[] = {1, 1}, places[] = {0, 1};
    if (!is_last) MPI_Gatherv(&value, 1, MPI_INT, results, counts, places, MPI_INT, 0, rows);
    if (is_last) MPI_Scan(&value, results, 1, MPI_INT, MPI_SUM, rows);
  } else if (strcmp(fault, "differs") == 0) {
    MPI_Allreduce(results, results + 1, 1, is_last ? MPI_FLOAT : MPI_INT, MPI_SUM, rows);
  } else if (strcmp(fault, "returned") == 0) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Comm_set_errhandler(rows, MPI_ERRORS_RETURN);
    const int code = is_last ? MPI_Barrier(rows) : MPI_Bcast(&value, 1, MPI_INT, 0, rows);
    MPI_Error_string(code, text, &length);
    if (code != MPI_SUCCESS && rank == 0) printf("returned: %s\n", text);
    /* And the communicator is whole. */
    if (MPI_Allreduce(&value, results, 1, MPI_INT, MPI_SUM, rows) == MPI_SUCCESS && rank == 0) {
      printf("then %d\n", results[0]);
    }
  }
  MPI_Comm_free(&rows);
  MPI_Finalize();
  return 0;
}
