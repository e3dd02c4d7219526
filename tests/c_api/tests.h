// SPDX-License-Identifier: Apache-2.0
// Checks for tests in C, the tests of c_api_test, and the data that they share. A check that fails
// is printed and counted; the test goes on, so that ranks stay in step.
#ifndef TESTS_C_API_TESTS_H
#define TESTS_C_API_TESTS_H

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

void test_tour(void);
void test_keys_and_lists(void);
void test_pushpull_and_broadcast(void);
void test_dtypes_and_shapes(void);
void test_memory(void);
void test_questions(void);
void test_updater(void);
void test_optimizer(void);
void test_gradient_scaling(void);
void test_schedule(void);
void test_keys(void);
void test_verify(void);
void test_statistics(void);
void test_pending(void);
void test_pending_outputs(void);
void test_pending_errors(void);
void test_multipliers(void);
void test_rows(void);
void test_row_updater(void);
void test_bad_rows(void);
void test_compression(void);
void test_save_and_load(void);
void test_optimizer_states(void);
void test_bad_paths(void);
void test_signals(void);
void test_gpus(void);
void test_signals_passed_on(void);
void test_requests_to_stop(void);
void test_collectives(void);
void test_groups(void);
void test_blocks(void);
void test_bad_blocks(void);
void test_communicator(void);
void test_bad_items(void);
void test_bad_collective_arguments(void);
void test_bad_handles(void);
void test_bad_local_arguments(void);
void test_bad_creation(void);
void test_errors_of_the_library(void);
void test_agree(void);
void test_last_error(void);

enum { kCells = 6 };

/// A (2, 3) tensor of float32 in `cells`, which are set to `value`.
tutti_tensor filled(float* cells, float value);

/// The item of a number, with one value and one output; either may be NULL.
tutti_item item_of(int64_t key, const tutti_tensor* value, const tutti_tensor* output);

/// True if all `kCells` elements are nearly `value`.
int all_are(const float* cells, double value);

/// True if what is stored under the number is `value`, by pull and by view.
int stores(tutti_kvstore* kv, int64_t key, double value);

void init_with(tutti_kvstore* kv, int64_t key, float value);
void push_all(tutti_kvstore* kv, int64_t key, float value);

/// Elements of any type as doubles; integers from -128 to 255 are exact in each type.
double get(int dtype, const void* data, int64_t i);
void set(int dtype, void* data, int64_t i, double value);
int size_of(int dtype);

#endif
