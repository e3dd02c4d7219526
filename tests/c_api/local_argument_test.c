// SPDX-License-Identifier: Apache-2.0
// Wrong handles, and wrong arguments of local calls.
#include "tests.h"

static const int64_t kShape[] = {2, 3};
static const int64_t kNegative[] = {2, -3};

#define CHECK_NO_HANDLE(function, place, arguments)             \
  CHECK_ERROR(function arguments, TUTTI_ERROR_INVALID_ARGUMENT, \
              #function ": " place ": expected a ", ", got NULL")

void test_bad_handles(void) {
  CHECK_NO_HANDLE(tutti_kvstore_create_over, "communicator", (NULL, &(tutti_kvstore*){NULL}));
  CHECK_NO_HANDLE(tutti_kvstore_init, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_push, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_pull, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_pushpull, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_broadcast, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_view, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_allocate, "kv", (NULL, NULL, 0, TUTTI_INT8, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_updater, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_optimizer, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_updaters, "kv", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_set_gradient_compression, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_pull_with, "kv", (NULL, NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_init_row_sparse, "kv", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_init_row_sparse_zeros, "kv", (NULL, NULL, NULL, 0, 1));
  CHECK_NO_HANDLE(tutti_kvstore_push_rows, "kv", (NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_kvstore_row_sparse_pull, "kv", (NULL, NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_save, "kv", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_kvstore_load, "kv", (NULL, NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_loaded_metadata, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_loaded_warnings, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_save_optimizer_states, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_load_optimizer_states, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_barrier, "kv", (NULL));
  CHECK_NO_HANDLE(tutti_kvstore_agree, "kv", (NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_rank, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_num_workers, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_type, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_is_capable, "kv", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_topology, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_algorithms, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allocate, "communicator", (NULL, NULL, 0, 1, NULL));
  CHECK_NO_HANDLE(tutti_communicator_allreduce, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_reduce, "communicator", (NULL, NULL, NULL, 0, 0));
  CHECK_NO_HANDLE(tutti_communicator_reduce_scatter, "communicator", (NULL, NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_allgather, "communicator", (NULL, NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_broadcast, "communicator", (NULL, NULL, 0));
  CHECK_NO_HANDLE(tutti_communicator_barrier, "communicator", (NULL));
  CHECK_NO_HANDLE(tutti_communicator_agree, "communicator", (NULL, 0, NULL));
  CHECK_NO_HANDLE(tutti_optimizer_set_learning_rate, "optimizer", (NULL, 1));
  CHECK_NO_HANDLE(tutti_optimizer_learning_rate, "optimizer", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_optimizer_set_lr_mult, "optimizer", (NULL, NULL, 1));
  CHECK_NO_HANDLE(tutti_optimizer_set_wd_mult, "optimizer", (NULL, NULL, 1));
  CHECK_NO_HANDLE(tutti_buffer_tensor, "buffer", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_preemption_pass_on, "signals", (NULL));
  CHECK_NO_HANDLE(tutti_preemption_received, "signals", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_stop_requested, "kv", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_kvstore_request_stop, "kv", (NULL));
  CHECK_NO_HANDLE(tutti_communicator_stop_requested, "communicator", (NULL, NULL));
  CHECK_NO_HANDLE(tutti_communicator_request_stop, "communicator", (NULL));

  tutti_communicator* self = NULL;
  CHECK_OK(tutti_communicator_self(test_settings, &self));
  void* const communicator = self;
  static int64_t junk[64] = {42};
  CHECK_ERROR(tutti_kvstore_barrier(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_barrier: kv: expected a tutti_kvstore, got a tutti_communicator");
  CHECK_ERROR(tutti_kvstore_destroy(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "tutti_kvstore_destroy: kv: expected a tutti_kvstore, got a tutti_communicator");
  CHECK_ERROR(tutti_optimizer_destroy(communicator), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_optimizer, got a tutti_communicator");
  CHECK_ERROR(tutti_buffer_destroy((void*)junk), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_buffer, got what is no handle of this library");
  CHECK_ERROR(tutti_communicator_destroy((void*)junk), TUTTI_ERROR_INVALID_ARGUMENT,
              "expected a tutti_communicator, got what is no handle of this library");
  CHECK_OK(tutti_communicator_barrier(self));
  CHECK_OK(tutti_communicator_destroy(self));
}

#define CHECK_INVALID(call, ...) CHECK_ERROR(call, TUTTI_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define NO_POINTER ": expected a pointer, got NULL"

void test_bad_local_arguments(void) {
  tutti_kvstore* kv = make_store("local");
  init_with(kv, 3, 1);
  const tutti_key three = {.number = 3};
  tutti_tensor view = {.ndim = 77};
  tutti_buffer* buffer = NULL;
  int capable = 0;
  CHECK_INVALID(tutti_kvstore_view(kv, NULL, &view), "tutti_kvstore_view: key" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_view(kv, &three, NULL), "tutti_kvstore_view: view" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_view(kv, &(tutti_key){.number = 4}, &view), "key 4", "unknown");
  CHECK_INVALID(tutti_kvstore_view(kv, &(tutti_key){.text = "w"}, &view), "key w", "a string");
  CHECK(view.ndim == 77);  // as it was
  CHECK_INVALID(tutti_kvstore_allocate(kv, kShape, 2, 9, &buffer),
                "tutti_kvstore_allocate: dtype: expected 1 (float16) to 8 (int64), got 9");
  CHECK_INVALID(tutti_kvstore_allocate(kv, kNegative, 2, TUTTI_INT8, &buffer),
                "tutti_kvstore_allocate: shape: ", "got -3");
  CHECK_INVALID(tutti_kvstore_allocate(kv, NULL, 2, TUTTI_INT8, &buffer),
                "tutti_kvstore_allocate: shape: expected a list of 2, got NULL");
  CHECK_INVALID(tutti_kvstore_allocate(kv, kShape, 2, TUTTI_INT8, NULL),
                "tutti_kvstore_allocate: buffer" NO_POINTER);
  CHECK(buffer == NULL);
  CHECK_INVALID(tutti_kvstore_rank(kv, NULL), "tutti_kvstore_rank: rank" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_num_workers(kv, NULL), "num_workers" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_type(kv, NULL), "tutti_kvstore_type: type" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_stop_requested(kv, NULL), "requested" NO_POINTER);
  CHECK_INVALID(tutti_preemption_create(NULL), "tutti_preemption_create: signals" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_is_capable(kv, NULL, &capable), "capability" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_is_capable(kv, "optimizer", NULL), "capable" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_set_optimizer(kv, NULL),
                "tutti_kvstore_set_optimizer: optimizer: expected a tutti_optimizer, got NULL");

  tutti_optimizer* optimizer = NULL;
  CHECK_INVALID(tutti_optimizer_create(NULL, &optimizer), "text" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_create("sgd", NULL), "optimizer" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_create("sdg", &optimizer),
                "tutti_optimizer_create: text: unknown optimizer 'sdg', did you mean ");
  CHECK_INVALID(tutti_optimizer_create("sgd,momentum=2", &optimizer), "momentum=2", "expected");
  CHECK(optimizer == NULL);
  CHECK_OK(tutti_optimizer_create("sgd", &optimizer));
  CHECK_INVALID(tutti_optimizer_set_learning_rate(optimizer, -1), "learning_rate", "-1");
  CHECK_INVALID(tutti_optimizer_learning_rate(optimizer, NULL), "learning_rate" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_set_lr_mult(optimizer, NULL, 1), "key" NO_POINTER);
  CHECK_INVALID(tutti_optimizer_set_wd_mult(optimizer, &three, 1.0 / 0.0), "wd_mult", "inf");
  CHECK_OK(tutti_optimizer_destroy(optimizer));
  CHECK_OK(tutti_kvstore_destroy(kv));
}

void test_bad_creation(void) {
  tutti_kvstore* kv = NULL;
  tutti_communicator* communicator = NULL;
  static const char* const kUnknown[] = {"TUTTI_TIMOUT=5", NULL};
  static const char* const kNoPrefix[] = {"TUTTI_TIMEOUT=5", "WARNINGS=0", NULL};
  static const char* const kNoValue[] = {"TUTTI_TIMEOUT", NULL};
  static const char* const kBadValue[] = {"TUTTI_TIMEOUT=soon", NULL};
  CHECK_INVALID(tutti_kvstore_create("remote", NULL, &kv), "'remote'", "local, device or dist");
  CHECK_INVALID(tutti_kvstore_create(NULL, NULL, &kv), "tutti_kvstore_create: type" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_create("local", NULL, NULL), "tutti_kvstore_create: kv" NO_POINTER);
  CHECK_INVALID(tutti_kvstore_create("dist", kUnknown, &kv),
                "tutti_kvstore_create: settings: TUTTI_TIMOUT is not a setting; did you mean "
                "TUTTI_TIMEOUT?");
  CHECK_INVALID(tutti_kvstore_create("dist", kNoPrefix, &kv),
                "settings[1]: expected TUTTI_<name>=<value>, got 'WARNINGS=0'");
  CHECK_INVALID(tutti_communicator_world(kNoValue, &communicator),
                "tutti_communicator_world: settings[0]: expected TUTTI_<name>=<value>, got");
  CHECK_INVALID(tutti_communicator_self(kBadValue, &communicator),
                "tutti_communicator_self: settings: TUTTI_TIMEOUT=soon: expected a number");
  CHECK_INVALID(tutti_communicator_self(NULL, NULL), "communicator" NO_POINTER);
  CHECK(kv == NULL && communicator == NULL);
}
