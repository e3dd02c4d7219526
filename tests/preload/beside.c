// SPDX-License-Identifier: Apache-2.0
// What goes on beside collectives: messages from any rank, one-sided epochs, nonblocking and
// persistent calls. Rank 0 prints "N cases, M wrong". With "quiet" no rank calls a collective.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { kMost = 64, kCount = 1 << 16 };

static int rank, ranks, cases, wrong;
static int given[kCount], got[kCount];

static void verdict(const char* name, int is_right) {
  int all = 0;
  MPI_Reduce(&is_right, &all, 1, MPI_INT, MPI_LAND, 0, MPI_COMM_WORLD);
  ++cases;
  if (rank != 0 || all) return;
  ++wrong;
  printf("wrong: %s\n", name);
}

/* Each rank gets one message of every other, from whom and with what tag it comes, while all are in
   collectives of the same communicator. */
static void messages_from_any_rank(void) {
  static char texts[kMost][1 << 14];
  static char own[1 << 14];
  MPI_Request sent[kMost], received[kMost];
  int seen[kMost] = {0}, right = 1, sum = 0;
  memset(own, 'a' + rank, sizeof own);
  for (int i = 0; i < ranks - 1; ++i) {
    MPI_Irecv(texts[i], sizeof texts[i], MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
              &received[i]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 1; i < ranks; ++i) {
    MPI_Isend(own, sizeof own, MPI_CHAR, (rank + i) % ranks, 100 + rank, MPI_COMM_WORLD,
              &sent[i - 1]);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    right &= sum == ranks * (ranks - 1) / 2;
  }
  MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 0; i < ranks - 1; ++i) {
    MPI_Status status;
    MPI_Wait(&received[i], &status);
    right &= status.MPI_TAG == 100 + status.MPI_SOURCE && !seen[status.MPI_SOURCE]++;
    right &= texts[i][sizeof texts[i] - 1] == 'a' + status.MPI_SOURCE;
  }
  MPI_Waitall(ranks - 1, sent, MPI_STATUSES_IGNORE);
  verdict("messages from any rank", right);
}

/* Rank 0 is in a barrier while the others put and get in its memory. */
static void one_sided_epochs(void) {
  MPI_Win window;
  int right = 1, *memory;
  const MPI_Aint bytes = (MPI_Aint)sizeof(int) * kCount;
  MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  memset(memory, 0, (size_t)bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {
    const int value = rank * 10;
    int back = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Put(&value, 1, MPI_INT, 0, rank, 1, MPI_INT, window);
    MPI_Win_unlock(0, window);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&back, 1, MPI_INT, 0, rank, 1, MPI_INT, window);
    MPI_Win_unlock(0, window);
    right &= back == value;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_fence(0, window);
  MPI_Accumulate(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
  MPI_Win_fence(0, window);
  if (rank == 0) {
    for (int i = 1; i < ranks; ++i) right &= memory[i] == i * 10;
    right &= memory[0] == ranks * (ranks - 1) / 2;
  }
  MPI_Win_free(&window);
  verdict("one-sided epochs", right);
}

/* A nonblocking sum, a broadcast and a message are under way while blocking calls begin and end. */
static void nonblocking_calls(void) {
  MPI_Request requests[3];
  int sum = 0, right = 1, value = rank == ranks - 1 ? 7 : 0;
  for (int i = 0; i < kCount; ++i) given[i] = rank + i;
  MPI_Iallreduce(given, got, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
  MPI_Ibcast(&value, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD, &requests[1]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
  for (int i = 0; i < 5; ++i) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    right &= sum == ranks * (ranks - 1) / 2;
  }
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < kCount; ++i) right &= got[i] == ranks * (ranks - 1) / 2 + ranks * i;
  verdict("nonblocking calls", right && value == 7);
}

static void persistent_messages(void) {
  MPI_Request requests[2];
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  int mine = 0, theirs = -1, right = 1, most = 0;
  MPI_Send_init(&mine, 1, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(&theirs, 1, MPI_INT, last, 3, MPI_COMM_WORLD, &requests[1]);
  for (int i = 0; i < 50; ++i) {
    mine = rank + i;
    MPI_Startall(2, requests);
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    right &= theirs == last + i && most == ranks - 1 + i;
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
  verdict("persistent messages", right);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc == 1) {
    messages_from_any_rank();
    one_sided_epochs();
    nonblocking_calls();
    persistent_messages();
  }
  if (rank == 0) printf("%d cases, %d wrong\n", cases, wrong);
  MPI_Finalize();
  return wrong != 0;
}
