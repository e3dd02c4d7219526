// SPDX-License-Identifier: Apache-2.0
// Calls beside collectives: messages, one-sided epochs, nonblocking and persistent calls.
// Rank 0 prints "N cases, M wrong". With "quiet" no rank calls a collective.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A status of a call or a probe says from whom, with what tag, and how many ints. */
static int is_as_sent(const MPI_Status* status, int source, int tag, int count) {
  int received = -1;
  MPI_Get_count(status, MPI_INT, &received);
  return status->MPI_SOURCE == source && status->MPI_TAG == tag && received == count;
}

static int is_data_of(int source, int count) {
  int right = 1;
  for (int i = 0; i < count; ++i) right &= got[i] == source * 1000 + i;
  memset(got, 0, sizeof got);
  return right;
}

/* From the last rank in a ring to the next one, by the calls that wait. */
static int right_messages_of(int count, int synchronous) {
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  int (*send)(const void*, int, MPI_Datatype, int, int, MPI_Comm) =
      synchronous ? MPI_Ssend : MPI_Send;
  MPI_Request requests[2];
  MPI_Message message;
  MPI_Status status, statuses[2];
  int index, completed, indices[2], right = 1;
  for (int i = 0; i < count; ++i) given[i] = rank * 1000 + i;
  if (ranks > 1) {
    if (rank != 0) send(given, count, MPI_INT, next, 1, MPI_COMM_WORLD);
    MPI_Recv(got, kCount, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (rank == 0) send(given, count, MPI_INT, next, 1, MPI_COMM_WORLD);
    right &= is_as_sent(&status, last, 1, count) && is_data_of(last, count);
  }
  MPI_Sendrecv(given, count, MPI_INT, next, 2, got, kCount, MPI_INT, last, 2, MPI_COMM_WORLD,
               &status);
  right &= is_as_sent(&status, last, 2, count) && is_data_of(last, count);
  MPI_Sendrecv(given, count, MPI_INT, MPI_PROC_NULL, 2, got, kCount, MPI_INT, MPI_PROC_NULL, 2,
               MPI_COMM_WORLD, &status);
  right &= is_as_sent(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  MPI_Isend(given, count, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[0]);
  MPI_Probe(last, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  right &= is_as_sent(&status, last, 3, count);
  MPI_Irecv(got, kCount, MPI_INT, last, 3, MPI_COMM_WORLD, &requests[1]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Waitany(2, requests, &index, &status);
  right &= index == 1 && is_as_sent(&status, last, 3, count) && is_data_of(last, count);
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  right &= index == MPI_UNDEFINED;
  MPI_Isend(given, count, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(got, kCount, MPI_INT, last, 5, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  right &= is_as_sent(&statuses[1], last, 5, count) && is_data_of(last, count);
  MPI_Isend(given, count, MPI_INT, next, 4, MPI_COMM_WORLD, &requests[0]);
  MPI_Mprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &message, &status);
  right &= is_as_sent(&status, last, 4, count);
  MPI_Imrecv(got, kCount, MPI_INT, &message, &requests[1]);
  for (int left = 2; left > 0; left -= completed) {
    MPI_Waitsome(2, requests, &completed, indices, MPI_STATUSES_IGNORE);
    if (completed < 1) return 0;
  }
  right &= is_data_of(last, count) && requests[0] == requests[1];
  MPI_Waitsome(2, requests, &completed, indices, MPI_STATUSES_IGNORE);
  return right && completed == MPI_UNDEFINED;
}

static void messages_that_are_waited_for(void) {
  static const int counts[] = {0, 1, 1001, kCount};
  int right = 1;
  for (int i = 0; i < 8; ++i) right &= right_messages_of(counts[i / 2], i % 2);
  verdict("messages that are waited for", right);
}

/* After one second a wait polls MPI less often. */
static void a_message_that_comes_late(void) {
  int right = 1;
  if (ranks > 1 && rank == 0) {
    usleep(1300000);
    MPI_Send(given, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
  } else if (rank == 1) {
    MPI_Status status;
    MPI_Recv(got, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, &status);
    right = is_as_sent(&status, 0, 6, 1);
  }
  verdict("a message that comes late", right);
}

static int handled;

static void handle(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  ++handled;
}

/* MPICH 5 returns MPI_SUCCESS after an error handler of the program's own. */
static int is_of_class(int code, int expected) {
  int error_class;
  MPI_Error_class(code, &error_class);
  return code == MPI_SUCCESS || error_class == expected;
}

/* Messages that are too long for the buffer, and arguments that MPI refuses, which wait for no
   message and send none: each is one call of the error handler. Not by MPI_Wait, for which
   MPICH 4.0.2 takes another handler. */
static void calls_that_fail(void) {
  MPI_Comm own;
  MPI_Errhandler handler;
  MPI_Status status;
  int codes[6], found = 0, right = 1;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_set_errhandler(own, handler);
  if (rank == 0 && ranks > 1) {
    for (int tag = 0; tag < 2; ++tag) MPI_Send(given, 2, MPI_INT, 1, tag, own);
  } else if (rank == 1) {
    codes[0] = MPI_Recv(got, 1, MPI_INT, 0, 0, own, MPI_STATUS_IGNORE);
    codes[1] = MPI_Sendrecv(given, 0, MPI_INT, MPI_PROC_NULL, 0, got, 1, MPI_INT, 0, 1, own,
                            MPI_STATUS_IGNORE);
    codes[2] = MPI_Recv(got, 1, MPI_INT, ranks, 0, own, MPI_STATUS_IGNORE);
    codes[3] = MPI_Recv(got, -1, MPI_INT, 0, 0, own, MPI_STATUS_IGNORE);
    codes[4] = MPI_Probe(ranks, 0, own, &status);
    codes[5] =
        MPI_Sendrecv(given, 1, MPI_INT, 1, 2, got, -1, MPI_INT, 1, 2, own, MPI_STATUS_IGNORE);
    MPI_Iprobe(1, 2, own, &found, &status);
    right = is_of_class(codes[0], MPI_ERR_TRUNCATE) && is_of_class(codes[1], MPI_ERR_TRUNCATE) &&
            is_of_class(codes[2], MPI_ERR_RANK) && is_of_class(codes[3], MPI_ERR_COUNT) &&
            is_of_class(codes[4], MPI_ERR_RANK) && is_of_class(codes[5], MPI_ERR_COUNT) &&
            handled == 6 && !found;
  }
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&own);
  verdict("calls that fail", right);
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
    messages_that_are_waited_for();
    a_message_that_comes_late();
    calls_that_fail();
  }
  if (rank == 0) printf("%d cases, %d wrong\n", cases, wrong);
  MPI_Finalize();
  return wrong != 0;
}
