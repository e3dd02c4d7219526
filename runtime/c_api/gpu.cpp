// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/gpu.h"

#include "tutti/gpu.hpp"

#include "runtime/c_api/status.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face

int tutti_gpu_count(int* count) {
  return guarded(__func__,
                 [&](const Place& here) { required(here, "count", count) = tutti::num_gpus(); });
}

int tutti_gpu_set_stream(int device_index, void* stream) {
  return guarded(__func__,
                 [&](const Place&) { tutti::set_stream(tutti::gpu(device_index), stream); });
}

int tutti_gpu_synchronize(int device_index) {
  return guarded(__func__, [&](const Place&) { tutti::synchronize(tutti::gpu(device_index)); });
}
