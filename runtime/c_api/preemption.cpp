// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/preemption.h"

#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/on_store.hpp"
#include "runtime/c_api/status.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face
using tutti::KVStore;

static_assert(TUTTI_EXIT_REQUEUE == tutti::kExitRequeue);

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

int tutti_kvstore_stop_requested(const tutti_kvstore* kv, int* requested) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    required(here, "requested", requested) = store.stop_requested() ? 1 : 0;
  });
}

int tutti_communicator_stop_requested(const tutti_communicator* communicator, int* requested) {
  return guarded(__func__, [&](const Place& here) {
    const bool found = open(here, "communicator", communicator).communicator.stop_requested();
    required(here, "requested", requested) = found ? 1 : 0;
  });
}

int tutti_kvstore_request_stop(tutti_kvstore* kv) {
  return on_store(__func__, kv, [](const Place&, KVStore& store) { store.request_stop(); });
}

int tutti_communicator_request_stop(tutti_communicator* communicator) {
  return guarded(__func__, [&](const Place& here) {
    open(here, "communicator", communicator).communicator.request_stop();
  });
}
