// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/kvstore.h"

#include <algorithm>

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/on_store.hpp"
#include "runtime/c_api/updater.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face
using tutti::KVStore;

int tutti_kvstore_create(const char* type, const char* const* settings, tutti_kvstore** kv) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore*& created = required(here, "kv", kv);
    const char* name = &required(here, "type", type);
    const tutti::Settings chosen = read_settings(here, settings);
    created = new tutti_kvstore{.store = KVStore::create(name, chosen)};
  });
}

int tutti_kvstore_create_over(const tutti_communicator* communicator, tutti_kvstore** kv) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore*& created = required(here, "kv", kv);
    const auto& ranks = open(here, "communicator", communicator).communicator;
    created = new tutti_kvstore{.store = KVStore::create(ranks)};
  });
}

int tutti_kvstore_destroy(tutti_kvstore* kv) {
  return guarded(__func__, [&](const Place& here) {
    if (kv != nullptr && open(here, "kv", kv).in_updater) {
      throw_invalid_argument({&here, "kv"}, "a store without a call under way",
                             "one whose updater is running");
    }
    delete kv;
  });
}

int tutti_kvstore_init(tutti_kvstore* kv, const tutti_item* items, int num_items) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const Items given =
        read_on_all(store, [&] { return read_items(here, items, num_items, Sides::values); });
    store.init(given.keys, given.values);
  });
}

int tutti_kvstore_push(tutti_kvstore* kv, const tutti_item* items, int num_items, int priority) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const Items given =
        read_on_all(store, [&] { return read_items(here, items, num_items, Sides::values); });
    store.push(given.keys, given.values, priority);
  });
}

int tutti_kvstore_pull(tutti_kvstore* kv, const tutti_item* items, int num_items, int cast) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    const Items given = read_items(here, items, num_items, Sides::outputs);
    store.pull(given.keys, given.outputs, cast == 0 ? tutti::Cast::no : tutti::Cast::yes);
  });
}

int tutti_kvstore_pull_with(tutti_kvstore* kv, const tutti_item* items, int num_items,
                            const tutti_pull_options* options) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    const tutti_pull_options& chosen = required(here, "options", options);
    const Items given = read_items(here, items, num_items, Sides::outputs);
    store.pull(given.keys, given.outputs,
               {.cast = chosen.cast == 0 ? tutti::Cast::no : tutti::Cast::yes,
                .ignore_sparse = chosen.whole_tables == 0,
                .priority = chosen.priority});
  });
}

int tutti_kvstore_pushpull(tutti_kvstore* kv, const tutti_item* items, int num_items,
                           int priority) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const Items given =
        read_on_all(store, [&] { return read_items(here, items, num_items, Sides::both); });
    const bool over_values =
        std::ranges::all_of(given.outputs, [](const auto& list) { return list.empty(); });
    store.pushpull(given.keys, given.values, over_values ? given.values : given.outputs, priority);
  });
}

int tutti_kvstore_broadcast(tutti_kvstore* kv, const tutti_item* items, int num_items) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const Items given =
        read_on_all(store, [&] { return read_items(here, items, num_items, Sides::both); });
    store.broadcast(given.keys, given.values, given.outputs);
  });
}

int tutti_kvstore_view(tutti_kvstore* kv, const tutti_key* key, tutti_tensor* view) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    tutti_tensor& found = required(here, "view", view);
    const tutti::Key wanted = read_key(here, key);
    found = to_c(handle.views.insert_or_assign(wanted, handle.store.view(wanted)).first->second);
  });
}

int tutti_kvstore_allocate(tutti_kvstore* kv, const int64_t* shape, int ndim, int dtype,
                           tutti_buffer** buffer) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    tutti_buffer*& created = required(here, "buffer", buffer);
    const tutti::Shape wanted = read_shape(here, shape, ndim);
    created = new tutti_buffer{.tensor = store.allocate(wanted, read_dtype(here, dtype))};
  });
}

int tutti_kvstore_set_updater(tutti_kvstore* kv, tutti_updater updater, void* user_data) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    handle.store.set_updater(make_updater(handle, updater, user_data));
  });
}

int tutti_kvstore_set_optimizer(tutti_kvstore* kv, const tutti_optimizer* optimizer) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    store.set_optimizer(open(here, "optimizer", optimizer).optimizer);
  });
}

int tutti_kvstore_set_gradient_compression(tutti_kvstore* kv, const char* compression) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    store.set_gradient_compression(&required(here, "compression", compression));
  });
}

int tutti_kvstore_barrier(tutti_kvstore* kv) {
  return on_store(__func__, kv, [](const Place&, KVStore& store) { store.barrier(); });
}

int tutti_kvstore_agree(tutti_kvstore* kv, int status, const char* text) {
  return on_store(__func__, kv,
                  [&](const Place& here, KVStore& store) { agree(here, store, status, text); });
}

int tutti_kvstore_rank(const tutti_kvstore* kv, int* rank) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    required(here, "rank", rank) = store.rank();
  });
}

int tutti_kvstore_num_workers(const tutti_kvstore* kv, int* num_workers) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    required(here, "num_workers", num_workers) = store.num_workers();
  });
}

int tutti_kvstore_type(const tutti_kvstore* kv, const char** type) {
  return guarded(__func__, [&](const Place& here) {
    const std::string& name = open(here, "kv", kv).type;
    required(here, "type", type) = name.c_str();
  });
}

int tutti_kvstore_is_capable(const tutti_kvstore* kv, const char* capability, int* capable) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    const char* name = &required(here, "capability", capability);
    required(here, "capable", capable) = store.is_capable(name) ? 1 : 0;
  });
}
