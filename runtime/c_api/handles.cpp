// SPDX-License-Identifier: Apache-2.0
// The check of handles, and the functions of buffers, optimizers, preemption and GPUs (which have
// no handle). Stores and communicators have files of their own.
#include "runtime/c_api/handles.hpp"

#include <cstring>

#include "tutti/c/gpu.h"
#include "tutti/c/optimizer.h"
#include "tutti/gpu.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/c_api/arguments.hpp"

namespace tutti::c_api {

namespace {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kvstore:
      return "a tutti_kvstore";
    case Kind::communicator:
      return "a tutti_communicator";
    case Kind::optimizer:
      return "a tutti_optimizer";
    case Kind::buffer:
      return "a tutti_buffer";
    case Kind::preemption:
      return "a tutti_preemption";
    case Kind::pending:
      return "a tutti_pending";
  }
  return "what is no handle of this library";
}

}  // namespace

void require_kind(const Place& place, const void* handle, Kind expected) {
  if (handle == nullptr) throw_invalid_argument(place, to_string(expected), "NULL");
  Kind found{};
  std::memcpy(&found, handle, sizeof found);  // the first member, whatever type the handle has
  if (found != expected) throw_invalid_argument(place, to_string(expected), to_string(found));
}

}  // namespace tutti::c_api

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface

static_assert(TUTTI_EXIT_REQUEUE == tutti::kExitRequeue);

int tutti_buffer_tensor(const tutti_buffer* buffer, tutti_tensor* tensor) {
  return guarded(__func__, [&](const Place& here) {
    const tutti::Tensor& owned = open(here, "buffer", buffer).tensor;
    required(here, "tensor", tensor) =
        to_c(owned.bytes(), owned.shape(), owned.dtype(), owned.device());
  });
}

int tutti_buffer_destroy(tutti_buffer* buffer) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "buffer", buffer); });
}

int tutti_optimizer_create(const char* text, tutti_optimizer** optimizer) {
  return guarded(__func__, [&](const Place& here) {
    tutti_optimizer*& created = required(here, "optimizer", optimizer);
    const char* name_and_options = &required(here, "text", text);
    created = in_place({&here, "text"}, [&] {
      return new tutti_optimizer{.optimizer = tutti::optimizer::create(name_and_options)};
    });
  });
}

int tutti_optimizer_destroy(tutti_optimizer* optimizer) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "optimizer", optimizer); });
}

int tutti_optimizer_set_learning_rate(tutti_optimizer* optimizer, double learning_rate) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_learning_rate(learning_rate);
  });
}

int tutti_optimizer_set_schedule(tutti_optimizer* optimizer, const char* schedule) {
  return guarded(__func__, [&](const Place& here) {
    auto& changed = *open(here, "optimizer", optimizer).optimizer;
    in_place({&here, "schedule"}, [&] {
      const bool is_none = schedule == nullptr;
      changed.set_schedule(is_none ? std::nullopt : tutti::schedule::create(schedule));
    });
  });
}

int tutti_optimizer_learning_rate(const tutti_optimizer* optimizer, double* learning_rate) {
  return guarded(__func__, [&](const Place& here) {
    const auto& found = *open(here, "optimizer", optimizer).optimizer;
    required(here, "learning_rate", learning_rate) = found.learning_rate();
  });
}

int tutti_optimizer_set_lr_mult(tutti_optimizer* optimizer, const tutti_key* key, double factor) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_lr_mult(read_key(here, key), factor);
  });
}

int tutti_optimizer_set_wd_mult(tutti_optimizer* optimizer, const tutti_key* key, double factor) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "optimizer", optimizer).optimizer->set_wd_mult(read_key(here, key), factor);
  });
}

int tutti_preemption_create(tutti_preemption** signals) {
  return guarded(__func__, [&](const Place& here) {
    tutti_preemption*& created = required(here, "signals", signals);
    created = new tutti_preemption;
  });
}

int tutti_preemption_destroy(tutti_preemption* signals) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "signals", signals); });
}

int tutti_preemption_pass_on(tutti_preemption* signals) {
  return guarded(__func__,
                 [&](const Place& here) { open(here, "signals", signals).signals.pass_on(); });
}

int tutti_preemption_received(const tutti_preemption* signals, int* received) {
  return guarded(__func__, [&](const Place& here) {
    const bool found = open(here, "signals", signals).signals.received();
    required(here, "received", received) = found ? 1 : 0;
  });
}

int tutti_gpu_count(int* count) {
  return guarded(__func__,
                 [&](const Place& here) { required(here, "count", count) = tutti::num_gpus(); });
}

int tutti_gpu_set_stream(int device_index, void* stream) {
  return guarded(__func__,
                 [&](const Place&) { tutti::set_stream(tutti::gpu(device_index), stream); });
}

int tutti_gpu_wait_for_stream(int device_index, void* stream) {
  return guarded(__func__,
                 [&](const Place&) { tutti::wait_for_stream(tutti::gpu(device_index), stream); });
}

int tutti_gpu_let_stream_wait(int device_index, void* stream) {
  return guarded(__func__,
                 [&](const Place&) { tutti::let_stream_wait(tutti::gpu(device_index), stream); });
}

int tutti_gpu_synchronize(int device_index) {
  return guarded(__func__, [&](const Place&) { tutti::synchronize(tutti::gpu(device_index)); });
}
