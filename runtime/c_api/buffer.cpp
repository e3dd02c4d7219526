// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/status.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face

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
