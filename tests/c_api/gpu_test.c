// SPDX-License-Identifier: Apache-2.0
// GPUs in C. There may be some: then number 9999 is none of them.
#include "tests.h"

void test_gpus(void) {
  int count = -1;
  CHECK_OK(tutti_gpu_count(&count));
  CHECK(count >= 0);
  CHECK_ERROR(tutti_gpu_count(NULL), TUTTI_ERROR_INVALID_ARGUMENT, "tutti_gpu_count: count");
  CHECK_ERROR(tutti_gpu_set_stream(9999, NULL), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  CHECK_ERROR(tutti_gpu_synchronize(9999), TUTTI_ERROR_INVALID_ARGUMENT, "gpu(9999)");
  if (count > 0) {
    CHECK_OK(tutti_gpu_set_stream(0, NULL));
    CHECK_OK(tutti_gpu_synchronize(0));
  }
}
