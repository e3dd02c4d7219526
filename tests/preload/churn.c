// SPDX-License-Identifier: Apache-2.0
// Communicators come and go: churn [LOOPS] or churn costs [PAIRS]. A loop makes one or two by
// MPI_Comm_dup, MPI_Comm_split or MPI_Comm_create_group, with collectives in most of them, and
// frees those that have been there for a while, not in the order in which they came. Rank 0 prints
// "N loops, M wrong", and of the second half of the loops by how much the rank that grew most has
// grown: in KiB of memory that malloc has handed out, in descriptors, in mappings, and by how many
// of the library's files in /dev/shm. What is lost in each loop shows in all five parts of that
// half, and what an MPI takes now and then in some, so that memory is five times the median growth.
// Parts end with the same communicators there if LOOPS is a multiple of 3,840. With costs it prints
// what a pair of MPI_Comm_dup and MPI_Comm_free takes, alone and with a barrier, and what each of
// 500 communicators costs that are there at once: when it is made, and in its first barrier.
#include <dirent.h>
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD 16

typedef struct {
  long memory_kib, descriptors, mappings, files;
} Use;

static int rank, ranks, wrong;

/* Whose names begin so. */
static long entries_of(const char* folder, const char* start) {
  DIR* opened = opendir(folder);
  long count = 0;
  if (opened == NULL) return 0;
  for (struct dirent* entry = readdir(opened); entry != NULL; entry = readdir(opened)) {
    count += strncmp(entry->d_name, start, strlen(start)) == 0;
  }
  closedir(opened);
  return count;
}

static long lines_of(const char* path) {
  FILE* file = fopen(path, "r");
  long count = 0;
  if (file == NULL) return 0;
  for (int byte = getc(file); byte != EOF; byte = getc(file)) count += byte == '\n';
  fclose(file);
  return count;
}

/* In use, without what malloc keeps for later, which goes up and down by hundreds of KiB. */
static long allocated_kib(void) {
  const struct mallinfo2 heap = mallinfo2();
  return (long)((heap.uordblks + heap.hblkhd) / 1024);
}

static long resident_kib(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long kib = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "VmRSS:", 6) == 0) kib = strtol(line + 6, NULL, 10);
  }
  if (file != NULL) fclose(file);
  return kib;
}

static Use use_now(void) {
  char own[64];
  snprintf(own, sizeof own, "tutti-%ld-", (long)getpid());
  return (Use){allocated_kib(), entries_of("/proc/self/fd", ""), lines_of("/proc/self/maps"),
               entries_of("/dev/shm", own)};
}

static void call_in(MPI_Comm comm, int i) {
  int own, size, word;
  double value, sum = -1;
  MPI_Comm_rank(comm, &own);
  MPI_Comm_size(comm, &size);
  value = own + i;
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  wrong += sum != size * (double)i + size * (size - 1) / 2;
  word = own == i % size ? i : -1;
  MPI_Bcast(&word, 1, MPI_INT, i % size, comm);
  wrong += word != i;
  if (i % 64 == 0) {
    double* many = calloc(100000, sizeof *many);
    MPI_Allreduce(MPI_IN_PLACE, many, 100000, MPI_DOUBLE, MPI_SUM, comm);
    free(many);
  }
}

/* A communicator, of all ranks or a part of them; null on ranks outside of it. */
static MPI_Comm make(int i) {
  MPI_Comm made = MPI_COMM_NULL;
  if (i % 3 == 0) {
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
  } else if (i % 3 == 1) {
    MPI_Comm_split(MPI_COMM_WORLD, rank % (1 + i % 2), -rank, &made);
  } else {
    MPI_Group all, part;
    int range[1][3] = {{i % ranks == 0 && ranks > 2 ? 1 : 0, ranks - 1, 1}};
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_range_incl(all, 1, range, &part);
    if (rank >= range[0][0]) MPI_Comm_create_group(MPI_COMM_WORLD, part, 0, &made);
    MPI_Group_free(&part);
    MPI_Group_free(&all);
  }
  return made;
}

#define AT_ONCE 500

/* Of a pair; with a barrier, that of the slowest rank. */
static double us_of_pairs(int pairs, int with_barrier) {
  double most = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  for (int i = 0; i < pairs; ++i) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (with_barrier) MPI_Barrier(copy);
    MPI_Comm_free(&copy);
  }
  const double own = (MPI_Wtime() - begun) * 1e6 / pairs;
  MPI_Reduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return most;
}

static void print_costs(int pairs) {
  MPI_Comm made[AT_ONCE];
  double begun[3], us[2], most_us[2], kib[2], most_kib[2];
  long before[3];
  const double alone = us_of_pairs(pairs, 0);
  const double with_barrier = us_of_pairs(pairs, 1);
  before[0] = resident_kib();
  begun[0] = MPI_Wtime();
  for (int i = 0; i < AT_ONCE; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &made[i]);
  begun[1] = MPI_Wtime();
  before[1] = resident_kib();
  for (int i = 0; i < AT_ONCE; ++i) MPI_Barrier(made[i]);
  begun[2] = MPI_Wtime();
  before[2] = resident_kib();
  for (int i = 0; i < 2; ++i) {
    us[i] = (begun[i + 1] - begun[i]) * 1e6 / AT_ONCE;
    kib[i] = (double)(before[i + 1] - before[i]) / AT_ONCE;
  }
  for (int i = 0; i < AT_ONCE; ++i) MPI_Comm_free(&made[i]);
  MPI_Reduce(us, most_us, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(kib, most_kib, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%d pairs: %.2f us alone, %.2f us with a barrier\n", pairs, alone, with_barrier);
    printf("each of %d: %.2f us, %.1f KiB made; %.2f us, %.1f KiB in the first barrier\n", AT_ONCE,
           most_us[0], most_kib[0], most_us[1], most_kib[1]);
  }
}

#define PARTS 5

static int ascending(const void* a, const void* b) {
  const long left = *(const long*)a, right = *(const long*)b;
  return (left > right) - (left < right);
}

/* Of what the parts have grown by, from the memory at their ends. */
static long median_growth_kib(const long* ends_kib) {
  long grown_kib[PARTS];
  for (int i = 0; i < PARTS; ++i) grown_kib[i] = ends_kib[i + 1] - ends_kib[i];
  qsort(grown_kib, PARTS, sizeof *grown_kib, ascending);
  return grown_kib[PARTS / 2];
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  const int is_of_costs = argc > 1 && strcmp(argv[1], "costs") == 0;
  const int loops = argc > 1 + is_of_costs ? atoi(argv[1 + is_of_costs]) : 3000;
  MPI_Comm held[HELD];
  Use before = {0, 0, 0, 0};
  long ends_kib[PARTS + 1] = {0};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (is_of_costs) {
    print_costs(loops);
    MPI_Finalize();
    return 0;
  }
  for (int i = 0; i < HELD; ++i) held[i] = MPI_COMM_NULL;
  for (int i = 0; i < loops; ++i) {
    if (i == loops / 2) {
      MPI_Barrier(MPI_COMM_WORLD);
      before = use_now();
    }
    const int part = PARTS * (2 * i - loops) / loops;
    if (2 * i >= loops && ends_kib[part] == 0) ends_kib[part] = allocated_kib();
    MPI_Comm* place = &held[(i * 7 + i / HELD) % HELD];
    if (*place != MPI_COMM_NULL) MPI_Comm_free(place);
    *place = make(i);
    if (*place == MPI_COMM_NULL) continue;
    if (i % 8 != 5) call_in(*place, i);
    if (i % 5 == 0) {
      MPI_Comm copy;
      MPI_Comm_dup(*place, &copy);
      if (i % 2 == 0) call_in(copy, i);
      MPI_Comm_free(&copy);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const Use after = use_now();
  ends_kib[PARTS] = after.memory_kib;
  const long own[] = {PARTS * median_growth_kib(ends_kib), after.descriptors - before.descriptors,
                      after.mappings - before.mappings, after.files - before.files};
  long most[4] = {0, 0, 0, 0};
  for (int i = 0; i < HELD; ++i) {
    if (held[i] != MPI_COMM_NULL) MPI_Comm_free(&held[i]);
  }
  MPI_Reduce(own, most, 4, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%d loops, %d wrong, grown by %ld KiB, %ld descriptors, %ld mappings, %ld files\n",
           loops, all_wrong, most[0], most[1], most[2], most[3]);
  }
  MPI_Finalize();
  return wrong != 0;
}
