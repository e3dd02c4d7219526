// SPDX-License-Identifier: Apache-2.0
// The frame of a function on a store.
#pragma once

#include <utility>

#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/status.hpp"

namespace tutti::c_api {

/// Runs the body of an exported function on a store: body(place, the handle's store).
template <class Handle, class Body>
int on_store(const char* function, Handle* kv, Body&& body) noexcept {
  return guarded(function, [&](const Place& here) { body(here, open(here, "kv", kv).store); });
}

}  // namespace tutti::c_api
