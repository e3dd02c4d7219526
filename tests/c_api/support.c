// SPDX-License-Identifier: Apache-2.0
// What the tests share: checks, and data.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests.h"

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

static const int64_t kShape[] = {2, 3};

tutti_tensor filled(float* cells, float value) {
  for (int i = 0; i < kCells; ++i) cells[i] = value;
  return (tutti_tensor){.data = cells, .shape = kShape, .ndim = 2, .dtype = TUTTI_FLOAT32};
}

tutti_item item_of(int64_t key, const tutti_tensor* value, const tutti_tensor* output) {
  return (tutti_item){.key = {.number = key},
                      .values = value,
                      .num_values = value != NULL,
                      .outputs = output,
                      .num_outputs = output != NULL};
}

int all_are(const float* cells, double value) {
  for (int i = 0; i < kCells; ++i) {
    if (!(fabs((double)cells[i] - value) <= 1e-6 * fmax(1.0, fabs(value)))) return 0;
  }
  return 1;
}

int stores(tutti_kvstore* kv, int64_t key, double value) {
  float cells[kCells];
  const tutti_tensor output = filled(cells, 77);
  const tutti_item item = item_of(key, NULL, &output);
  tutti_tensor view = {0};
  CHECK_OK(tutti_kvstore_pull(kv, &item, 1, 0));
  CHECK_OK(tutti_kvstore_view(kv, &item.key, &view));
  return all_are(cells, value) && view.data != NULL && all_are(view.data, value);
}

void init_with(tutti_kvstore* kv, int64_t key, float value) {
  float cells[kCells];
  const tutti_tensor tensor = filled(cells, value);
  const tutti_item item = item_of(key, &tensor, NULL);
  CHECK_OK(tutti_kvstore_init(kv, &item, 1));
}

void push_all(tutti_kvstore* kv, int64_t key, float value) {
  float cells[kCells];
  const tutti_tensor tensor = filled(cells, value);
  const tutti_item item = item_of(key, &tensor, NULL);
  CHECK_OK(tutti_kvstore_push(kv, &item, 1, 0));
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Exact for normal numbers and zero.
static double get_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double magnitude = exponent == 0 ? 0 : ldexp(1024 + (bits & 1023), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t bits_of_float16(double value) {
  if (value == 0) return 0;
  int exponent;
  const double fraction = frexp(fabs(value), &exponent);  // 0.5 to 1
  const int bits = (exponent + 14) << 10 | ((int)(fraction * 2048) - 1024);
  return (uint16_t)(value < 0 ? bits | 0x8000 : bits);
}

double get(int dtype, const void* data, int64_t i) {
  switch (dtype) {
    case TUTTI_FLOAT16:
      return get_float16(((const uint16_t*)data)[i]);
    case TUTTI_BFLOAT16:
      return (double)float_of_bits((uint32_t)((const uint16_t*)data)[i] << 16);
    case TUTTI_FLOAT32:
      return (double)((const float*)data)[i];
    case TUTTI_FLOAT64:
      return ((const double*)data)[i];
    case TUTTI_INT8:
      return ((const int8_t*)data)[i];
    case TUTTI_UINT8:
      return ((const uint8_t*)data)[i];
    case TUTTI_INT32:
      return ((const int32_t*)data)[i];
    default:
      return (double)((const int64_t*)data)[i];
  }
}

void set(int dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case TUTTI_FLOAT16:
      ((uint16_t*)data)[i] = bits_of_float16(value);
      break;
    case TUTTI_BFLOAT16:
      ((uint16_t*)data)[i] = (uint16_t)(bits_of_float((float)value) >> 16);
      break;
    case TUTTI_FLOAT32:
      ((float*)data)[i] = (float)value;
      break;
    case TUTTI_FLOAT64:
      ((double*)data)[i] = value;
      break;
    case TUTTI_INT8:
      ((int8_t*)data)[i] = (int8_t)value;
      break;
    case TUTTI_UINT8:
      ((uint8_t*)data)[i] = (uint8_t)value;
      break;
    case TUTTI_INT32:
      ((int32_t*)data)[i] = (int32_t)value;
      break;
    default:
      ((int64_t*)data)[i] = (int64_t)value;
  }
}

int size_of(int dtype) {
  static const int kBytes[] = {0, 2, 2, 4, 8, 1, 1, 4, 8};
  return kBytes[dtype];
}
