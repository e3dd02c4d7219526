// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tutti/c/row_sparse.h"

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/on_store.hpp"
#include "runtime/c_api/updater.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face
using tutti::KVStore;

int tutti_kvstore_init_row_sparse(tutti_kvstore* kv, const tutti_item* items, int num_items) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const Items given =
        read_on_all(store, [&] { return read_items(here, items, num_items, Sides::values); });
    store.init_row_sparse(given.keys, given.values);
  });
}

int tutti_kvstore_init_row_sparse_zeros(tutti_kvstore* kv, const tutti_key* key,
                                        const int64_t* shape, int ndim, int dtype) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    struct Table {
      tutti::Key key;
      tutti::Shape shape;
      tutti::DType dtype;
    };
    const Table table = read_on_all(store, [&] {
      return Table{read_key(here, key), read_shape(here, shape, ndim), read_dtype(here, dtype)};
    });
    store.init_row_sparse(table.key, table.shape, table.dtype);
  });
}

int tutti_kvstore_push_rows(tutti_kvstore* kv, const tutti_rows_item* items, int num_items,
                            int priority) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const RowsItems given = read_on_all(store, [&] { return read_items(here, items, num_items); });
    store.push(given.keys, given.values, priority);
  });
}

int tutti_kvstore_row_sparse_pull(tutti_kvstore* kv, const tutti_key* key,
                                  const tutti_tensor* row_ids, tutti_buffer** ids,
                                  tutti_buffer** rows) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    tutti_buffer*& ids_made = required(here, "ids", ids);
    tutti_buffer*& rows_made = required(here, "rows", rows);
    tutti::RowSparse pulled;
    store.row_sparse_pull(read_key(here, key), pulled, read_tensor(here, "row_ids", row_ids));
    auto first = std::make_unique<tutti_buffer>(tutti_buffer{.tensor = std::move(pulled.ids)});
    rows_made = new tutti_buffer{.tensor = std::move(pulled.rows)};
    ids_made = first.release();
  });
}

int tutti_kvstore_set_updaters(tutti_kvstore* kv, tutti_updater dense, tutti_row_updater rows,
                               void* user_data) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    handle.store.set_updater(make_updater(handle, dense, user_data),
                             make_updater(handle, rows, user_data));
  });
}
