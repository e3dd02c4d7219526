// SPDX-License-Identifier: Apache-2.0
// Checks for tests in C. A check that fails is printed and counted; the test goes on, so that ranks
// stay in step.
#ifndef TESTS_C_API_CHECK_H
#define TESTS_C_API_CHECK_H

#include <stddef.h>

#include <tutti/tutti.h>

/// This rank and the number of ranks; set by run_tests.
extern int test_rank;
extern int test_size;

typedef struct test_case {
  const char* claim;
  void (*run)(void);
} test_case;

/// Runs the tests on all ranks, and returns the exit status of the process.
int run_tests(const test_case* tests, size_t count);

/// What tests give a store that would wait too long else.
extern const char* const test_settings[];

tutti_kvstore* make_store(const char* type);

int is_last(void);

void check_at(int is_true, const char* text, const char* file, int line);
void check_status(int got, int expected, const char* text, const char* file, int line);

/// The last call returned `expected`, and its text has all words; the list ends with NULL.
void check_error(int got, int expected, const char* const* words, const char* file, int line);

#define CHECK(condition) check_at((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define CHECK_OK(call) check_status((call), TUTTI_OK, #call, __FILE__, __LINE__)
/// CHECK_ERROR(call, status, "word of the text", ...)
#define CHECK_ERROR(call, status, ...) \
  check_error((call), (status), (const char* const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)

#endif
