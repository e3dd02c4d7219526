// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <stdio.h>
#include <string.h>

int test_rank = 0;
int test_size = 1;
const char* const test_settings[] = {"TUTTI_TIMEOUT=60", "TUTTI_LOG=quiet", NULL};

static int failures = 0;

static void fail(const char* file, int line, const char* what, const char* text) {
  ++failures;
  printf("[rank %d] %s:%d: %s: %s\n", test_rank, file, line, what, text);
  fflush(stdout);
}

int is_last(void) { return test_rank == test_size - 1; }

void check_at(int is_true, const char* text, const char* file, int line) {
  if (!is_true) fail(file, line, "is false", text);
}

void check_status(int got, int expected, const char* text, const char* file, int line) {
  if (got == expected) return;
  fail(file, line, tutti_status_name(got), text);
  if (got != TUTTI_OK) fail(file, line, "the text", tutti_last_error());
}

void check_error(int got, int expected, const char* const* words, const char* file, int line) {
  check_status(got, expected, tutti_status_name(expected), file, line);
  if (got == TUTTI_OK) return;
  for (; *words != NULL; ++words) {
    if (strstr(tutti_last_error(), *words) != NULL) continue;
    fail(file, line, "no such word in the text", *words);
    fail(file, line, "the text", tutti_last_error());
  }
}

tutti_kvstore* make_store(const char* type) {
  tutti_kvstore* kv = NULL;
  CHECK_OK(tutti_kvstore_create(type, test_settings, &kv));
  return kv;
}

int run_tests(const test_case* tests, size_t count) {
  tutti_communicator* world = NULL;
  tutti_topology topology = {0};
  if (tutti_communicator_world(test_settings, &world) != TUTTI_OK ||
      tutti_communicator_topology(world, &topology) != TUTTI_OK) {
    fail(__FILE__, __LINE__, "no communicator", tutti_last_error());
    return 1;
  }
  test_rank = topology.rank;
  test_size = topology.size;
  for (size_t i = 0; i < count; ++i) {
    const int before = failures;
    tests[i].run();
    if (failures != before) fail(__FILE__, __LINE__, "failed", tests[i].claim);
    // Ranks that are out of step meet here, and not in the next test.
    if (tutti_communicator_barrier(world) != TUTTI_OK) {
      fail(__FILE__, __LINE__, tests[i].claim, tutti_last_error());
      return 1;
    }
  }
  if (test_rank == 0) printf("%d tests, %d checks failed on rank 0\n", (int)count, failures);
  tutti_communicator_destroy(world);
  return failures == 0 ? 0 : 1;
}
