// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls. They do not agree with other ranks when they are made: an error of this rank
// alone is returned at once.
#include "tutti/c/pending.h"

#include <algorithm>

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface
using tutti::AsyncOptions;
using tutti::KVStore;

namespace {

AsyncOptions read_options(const tutti_async_options* options) {
  if (options == nullptr) return {};
  return {.priority = options->priority, .borrow = options->borrow != 0};
}

}  // namespace

int tutti_kvstore_push_async(tutti_kvstore* kv, const tutti_item* items, int num_items,
                             const tutti_async_options* options, tutti_pending** pending) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    tutti_pending*& created = required(here, "pending", pending);
    const Items given = read_items(here, items, num_items, Sides::values);
    auto handle = std::make_unique<tutti_pending>();
    handle->pending = store.push_async(given.keys, given.values, read_options(options));
    created = handle.release();
  });
}

int tutti_kvstore_pushpull_async(tutti_kvstore* kv, const tutti_item* items, int num_items,
                                 const tutti_async_options* options, tutti_pending** pending) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    tutti_pending*& created = required(here, "pending", pending);
    const Items given = read_items(here, items, num_items, Sides::both);
    const bool over_values =
        std::ranges::all_of(given.outputs, [](const auto& list) { return list.empty(); });
    AsyncOptions chosen = read_options(options);
    chosen.borrow = chosen.borrow || over_values;
    auto handle = std::make_unique<tutti_pending>();
    handle->pending = store.pushpull_async(given.keys, given.values,
                                           over_values ? given.values : given.outputs, chosen);
    created = handle.release();
  });
}

int tutti_communicator_allreduce_async(tutti_communicator* communicator, const tutti_tensor* input,
                                       const tutti_tensor* output, int op,
                                       const tutti_async_options* options,
                                       tutti_pending** pending) {
  return on_communicator(__func__, communicator, [&](const Place& here, auto& ranks) {
    tutti_pending*& created = required(here, "pending", pending);
    const tutti::TensorView from = read_tensor(here, "input", input);
    const tutti::TensorView to = read_tensor(here, "output", output);
    const tutti::ReduceOp by = read_op(here, op);
    auto handle = std::make_unique<tutti_pending>();
    handle->pending = ranks.allreduce_async(from, to, by, read_options(options));
    created = handle.release();
  });
}

int tutti_pending_ready(const tutti_pending* pending, int* ready) {
  return guarded(__func__, [&](const Place& here) {
    const bool is_ready = open(here, "pending", pending).pending.ready();
    required(here, "ready", ready) = is_ready ? 1 : 0;
  });
}

int tutti_pending_wait(const tutti_pending* pending) {
  return guarded(__func__,
                 [&](const Place& here) { open(here, "pending", pending).pending.wait(); });
}

int tutti_pending_destroy(tutti_pending* pending) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "pending", pending); });
}
