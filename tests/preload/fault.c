// SPDX-License-Identifier: Apache-2.0
// The last rank goes wrong: fault NAME [return | threads]. With "return" each rank prints the first
// error that it gets, and the job goes on. With "threads" all threads may call MPI.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, is_last, value = 1, results[2];
static MPI_Comm rows, columns, fresh;

static int sum(int count) { return MPI_Allreduce(&value, results, count, MPI_INT, MPI_SUM, rows); }

/* The root may have an error that no other rank has, and calls again. */
static int bcast_of_pairs(void) {
  int pairs[2] = {1, 2}, code;
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  const int is_root = rank == 0;
  if (is_root) MPI_Bcast(pairs, 1, pair, 0, rows);
  MPI_Type_commit(&pair);
  code = MPI_Bcast(pairs, 1, pair, 0, rows);
  MPI_Type_free(&pair);
  return code;
}

/* Other counts, datatypes, operations, roots and calls than those of the other ranks. */
static int differ(const char* fault) {
  const int counts[] = {1, 1, 1}, places[] = {0, 1, 2};
  int all[3];
  if (strcmp(fault, "types") == 0) {
    return MPI_Allreduce(results, results + 1, 1, is_last ? MPI_FLOAT : MPI_INT, MPI_SUM, rows);
  }
  if (strcmp(fault, "counts") == 0) return sum(is_last ? 1 : 2);
  if (strcmp(fault, "operations") == 0) {
    return MPI_Allreduce(&value, results, 1, MPI_INT, is_last ? MPI_MAX : MPI_SUM, rows);
  }
  if (strcmp(fault, "roots") == 0) return MPI_Bcast(&value, 1, MPI_INT, is_last ? 1 : 0, rows);
  if (strcmp(fault, "calls") == 0) {
    return is_last ? MPI_Barrier(rows) : MPI_Bcast(&value, 1, MPI_INT, 0, rows);
  }
  if (strcmp(fault, "empty") == 0) {
    return is_last ? MPI_Barrier(rows) : MPI_Bcast(&value, 0, MPI_INT, 0, rows);
  }
  if (strcmp(fault, "empty roots") == 0) return MPI_Bcast(&value, 0, MPI_INT, is_last, rows);
  if (strcmp(fault, "logical") == 0) { /* operations of MPI's own that MPI carries out */
    return MPI_Allreduce(&value, results, 1, MPI_INT, is_last ? MPI_LAND : MPI_LOR, rows);
  }
  if (strcmp(fault, "refused") == 0) { /* which a rank may learn alone */
    if (is_last) MPI_Bcast(&value, -1, MPI_INT, 0, rows), sum(-1);
    return MPI_Bcast(&value, 1, MPI_INT, 0, rows);
  }
  if (strcmp(fault, "elsewhere") == 0 && is_last) {
    usleep(500000); /* the others are the first whose time is up */
    return MPI_Barrier(columns);
  }
  if (strcmp(fault, "first") == 0) {
    return is_last ? MPI_Recv(&value, 1, MPI_INT, 0, 7, rows, MPI_STATUS_IGNORE)
                   : MPI_Barrier(fresh);
  }
  if (strcmp(fault, "uncommitted") == 0) return bcast_of_pairs();
  if (strcmp(fault, "gathered") == 0) { /* which MPI carries out */
    return is_last ? MPI_Scan(&value, results, 1, MPI_INT, MPI_SUM, rows)
                   : MPI_Gatherv(&value, 1, MPI_INT, all, counts, places, MPI_INT, 0, rows);
  }
  return sum(1);
}

/* One rank alone gets an error, and calls again. */
static int is_alone(const char* fault) {
  return strcmp(fault, "refused") == 0 || strcmp(fault, "uncommitted") == 0;
}

static void fail_as_told(const char* fault) {
  if (!is_last) return;
  if (strcmp(fault, "absent") == 0) sleep(60);
  if (strcmp(fault, "late") == 0) sleep(5);
  if (strcmp(fault, "killed") == 0) raise(SIGKILL);
  if (strcmp(fault, "stopped") == 0) raise(SIGSTOP);
  if (strcmp(fault, "exits") == 0) _exit(0);
  if (strcmp(fault, "finalizes") == 0) MPI_Finalize(), _exit(0);
  if (strcmp(fault, "aborts") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
}

/* After many calls in which ranks differ, all of them still take the same way. */
static void go_on(void) {
  int wrong = 0;
  for (int i = 0; i < 150; ++i) {
    int given = rank == 0 ? i : -1;
    wrong += MPI_Barrier(rows) != MPI_SUCCESS;
    wrong += MPI_Bcast(&given, 1, MPI_INT, 0, rows) != MPI_SUCCESS || given != i;
  }
  wrong += sum(1) != MPI_SUCCESS;
  if (rank == 0) printf("then %d, %d wrong\n", results[0], wrong);
}

int main(int argc, char** argv) {
  const char* fault = argc > 1 ? argv[1] : "";
  const int returns = argc > 2 && strcmp(argv[2], "return") == 0;
  const int threads = argc > 2 && strcmp(argv[2], "threads") == 0;
  int ranks, level, code = MPI_SUCCESS;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  is_last = rank == ranks - 1;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &rows);
  MPI_Comm_set_name(rows, "grid rows");
  MPI_Comm_dup(rows, &columns);
  MPI_Comm_set_name(columns, "grid columns");
  MPI_Comm_split(rows, 0, -rank, &fresh);
  MPI_Comm_set_name(fresh, "fresh rows");
  if (returns) MPI_Comm_set_errhandler(rows, MPI_ERRORS_RETURN);
  MPI_Barrier(rows);
  MPI_Barrier(columns);
  fail_as_told(fault);
  for (int i = 0; i < (returns ? 20 : 1); ++i) {
    const int now = differ(fault);
    if (code == MPI_SUCCESS) code = now;
  }
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
  }
  if (returns && (strcmp(fault, "calls") == 0 || is_alone(fault))) go_on();
  MPI_Comm_free(&fresh);
  MPI_Comm_free(&columns);
  MPI_Comm_free(&rows);
  MPI_Finalize();
  return 0;
}
