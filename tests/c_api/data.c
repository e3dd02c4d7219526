// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests.h"

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
