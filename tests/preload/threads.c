// SPDX-License-Identifier: Apache-2.0
// MPI_THREAD_MULTIPLE: each thread has a communicator, and they come to their first calls in
// another order on each rank. With an argument MPI_THREAD_SERIALIZED: a thread other than the one
// of MPI_Init makes all calls. A rank prints "N threads, M wrong".
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THREADS 3
#define CALLS 200

static int rank, ranks;

typedef struct {
  int number;
  int wrong;
  MPI_Comm comm;
} Thread;

static void* work(void* argument) {
  Thread* thread = argument;
  usleep(20000 * (unsigned)((thread->number + rank) % THREADS));
  for (int i = 0; i < CALLS; ++i) {
    double value = rank + i * thread->number, sum = 0;
    int root = i % ranks, word = rank == root ? i : -1;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, thread->comm);
    MPI_Bcast(&word, 1, MPI_INT, root, thread->comm);
    const double expected = ranks * (ranks - 1) / 2.0 + (double)ranks * i * thread->number;
    if (sum != expected || word != i) ++thread->wrong;
  }
  return NULL;
}

/* Rank 0 comes to the barrier only when its message has gone, which its receiver waits in. */
static void* send_beside_a_barrier(void* wrong) {
  static char message[1 << 22];
  MPI_Request request = MPI_REQUEST_NULL;
  memset(message, rank == 0 ? 'x' : '-', sizeof message);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) MPI_Irecv(message, sizeof message, MPI_CHAR, 0, 5, MPI_COMM_WORLD, &request);
  if (rank == 0) MPI_Send(message, sizeof message, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  *(int*)wrong = rank < 2 && message[sizeof message - 1] != 'x';
  return NULL;
}

static int with_another_thread(int* argc, char*** argv) {
  int level, wrong = 0;
  pthread_t thread;
  MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (level < MPI_THREAD_SERIALIZED) MPI_Abort(MPI_COMM_WORLD, 3);
  pthread_create(&thread, NULL, send_beside_a_barrier, &wrong);
  pthread_join(thread, NULL);
  if (rank == 1) printf("1 threads, %d wrong\n", wrong);
  MPI_Finalize();
  return wrong;
}

int main(int argc, char** argv) {
  int level, wrong = 0, all_wrong = 0;
  if (argc > 1) return with_another_thread(&argc, &argv);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (level < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 3);
  Thread threads[THREADS];
  pthread_t handles[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    threads[i] = (Thread){.number = i, .wrong = 0};
    MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
  }
  for (int i = 0; i < THREADS; ++i) pthread_create(&handles[i], NULL, work, &threads[i]);
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(handles[i], NULL);
    wrong += threads[i].wrong;
    MPI_Comm_free(&threads[i].comm);
  }
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d threads, %d wrong\n", THREADS, all_wrong);
  MPI_Finalize();
  return all_wrong != 0;
}
