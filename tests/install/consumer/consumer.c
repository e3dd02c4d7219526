// SPDX-License-Identifier: Apache-2.0
// A user's program in C.
#include <stdio.h>

#include <tutti/tutti.h>

int main(void) {
  const int64_t shape[] = {2, 3};
  float values[6] = {2, 2, 2, 2, 2, 2};
  const tutti_tensor weight = {.data = values, .shape = shape, .ndim = 2, .dtype = TUTTI_FLOAT32};
  const tutti_item item = {.key = {.number = 3}, .values = &weight, .num_values = 1};

  tutti_kvstore* kv = NULL;
  int rank = 0;
  int ranks = 0;
  tutti_tensor stored;
  int status = tutti_kvstore_create("dist", NULL, &kv);
  if (!status) status = tutti_kvstore_init(kv, &item, 1);
  if (!status) status = tutti_kvstore_push(kv, &item, 1, 0);
  if (!status) status = tutti_kvstore_view(kv, &item.key, &stored);
  if (!status) status = tutti_kvstore_rank(kv, &rank);
  if (!status) status = tutti_kvstore_num_workers(kv, &ranks);
  if (!status && rank == 0) {
    printf("consumer of %d ranks: %.1f\n", ranks, ((const float*)stored.data)[0]);
  }
  if (status && tutti_last_error_is_reporter()) fprintf(stderr, "%s\n", tutti_last_error());
  tutti_kvstore_destroy(kv);
  return tutti_exit_code(status);
}
