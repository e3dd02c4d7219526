// SPDX-License-Identifier: Apache-2.0
// The functions of the store: dense keys, rows, updaters, checkpoints.
#include "tutti/c/kvstore.h"

#include <algorithm>
#include <memory>

#include "tutti/c/checkpoint.h"
#include "tutti/c/row_sparse.h"
#include "tutti/snapshot.hpp"

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface
using tutti::KVStore;

namespace {

struct BuffersMade {
  tutti_buffer*& ids;
  tutti_buffer*& rows;
};

/// Pulls rows into two new buffers; makes both or none.
void pull_rows(const KVStore& store, const tutti::Key& key, const tutti::ConstTensorView& row_ids,
               tutti::Device device, const BuffersMade& made) {
  tutti::RowSparse pulled;
  pulled.rows = tutti::Tensor::empty({0}, tutti::DType::float32, device);
  store.row_sparse_pull(key, pulled, row_ids);
  auto ids = std::make_unique<tutti_buffer>(tutti_buffer{.tensor = std::move(pulled.ids)});
  made.rows = new tutti_buffer{.tensor = std::move(pulled.rows)};
  made.ids = ids.release();
}

/// While an object lives, this thread cannot destroy the store.
class Running {
 public:
  explicit Running(tutti_kvstore& kv) : kv_(kv) { kv_.updating = std::this_thread::get_id(); }
  ~Running() { kv_.updating = std::thread::id(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  tutti_kvstore& kv_;
};

/// Runs an updater. `call` calls the C function with its arguments.
template <class Call>
void run(tutti_kvstore& kv, const tutti::Key& key, Call call) {
  const tutti_key given = to_c(key);
  const Running running(kv);
  const int status = call(&given);
  if (status == 0) return;
  throw tutti::Error(tutti::ErrorCode::user_code,
                     "expected it to return 0, got " + std::to_string(status));
}

/// An updater that calls `function` with the key and tensors as C structs, and throws if it returns
/// anything but 0. No updater for null.
tutti::Updater make_updater(tutti_kvstore& kv, tutti_updater function, void* user_data) {
  if (function == nullptr) return nullptr;
  return [&kv, function, user_data](const tutti::Key& key, const tutti::ConstTensorView& merged,
                                    const tutti::TensorView& stored) {
    const tutti_tensor sum = to_c(merged);
    const tutti_tensor target = to_c(stored);
    run(kv, key, [&](const tutti_key* given) { return function(user_data, given, &sum, &target); });
  };
}

tutti::RowSparseUpdater make_updater(tutti_kvstore& kv, tutti_row_updater function,
                                     void* user_data) {
  if (function == nullptr) return nullptr;
  return [&kv, function, user_data](const tutti::Key& key, const tutti::RowSparseView& merged,
                                    const tutti::TensorView& stored) {
    const tutti_rows sum = {to_c(merged.ids()), to_c(merged.rows())};
    const tutti_tensor target = to_c(stored);
    run(kv, key, [&](const tutti_key* given) { return function(user_data, given, &sum, &target); });
  };
}

std::string read_path(const Place& here, const char* name, const char* path) {
  return &required(here, name, path);
}

tutti::Metadata read_metadata(const Place& here, const tutti_metadata* list, int count) {
  tutti::Metadata metadata;
  int index = 0;
  for (const tutti_metadata& item : read_list({&here, "metadata"}, list, count)) {
    const Place place{&here, "metadata", index++};
    metadata[&required(place, "name", item.name)] = &required(place, "text", item.text);
  }
  return metadata;
}

tutti::LoadOptions read_options(const tutti_load_options* options) {
  if (options == nullptr) return {};
  return {.weights_only = options->weights_only != 0,
          .other_options = options->other_options != 0,
          .may_be_absent = options->may_be_absent != 0};
}

std::string warnings_of(const tutti::LoadResult& loaded) {
  std::string text;
  for (const std::string& sentence : loaded.damaged) text += sentence + "\n";
  if (!loaded.reset_residuals.empty()) text += loaded.reset_residuals + "\n";
  return text;
}

tutti_kvstore* handle_of(KVStore store) {
  std::string type(store.type());
  return new tutti_kvstore{.type = std::move(type), .store = std::move(store)};
}

/// The arguments of the calls that save, read and checked.
struct SavedArguments {
  std::string directory;
  tutti::Metadata metadata;
};

SavedArguments read_saved(const Place& here, KVStore& store, const char* directory,
                          const tutti_metadata* metadata, int num_metadata) {
  return read_on_all(store, [&] {
    return SavedArguments{read_path(here, "directory", directory),
                          read_metadata(here, metadata, num_metadata)};
  });
}

}  // namespace

int tutti_kvstore_create(const char* type, const char* const* settings, tutti_kvstore** kv) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore*& created = required(here, "kv", kv);
    const char* name = &required(here, "type", type);
    const tutti::Settings chosen = read_settings(here, settings);
    created = handle_of(KVStore::create(name, chosen));
  });
}

int tutti_kvstore_create_over(const tutti_communicator* communicator, tutti_kvstore** kv) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore*& created = required(here, "kv", kv);
    const auto& ranks = open(here, "communicator", communicator).communicator;
    created = handle_of(KVStore::create(ranks));
  });
}

int tutti_kvstore_destroy(tutti_kvstore* kv) {
  return guarded(__func__, [&](const Place& here) {
    if (kv != nullptr && open(here, "kv", kv).updating == std::this_thread::get_id()) {
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
    const tutti::ConstTensorView replica = handle.store.view(wanted);
    const std::lock_guard lock(handle.mutex_of_views);
    tutti::ConstTensorView& kept = handle.views.try_emplace(wanted, replica).first->second;
    if (kept.bytes() != replica.bytes()) kept = replica;
    found = to_c(kept);
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

int tutti_kvstore_gradient_scaling(const tutti_kvstore* kv, tutti_gradient_scaling* scaling) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    const tutti::GradientScaling now = store.gradient_scaling();
    required(here, "scaling", scaling) = {now.loss_scale, now.good_pushes, now.skipped, now.norm,
                                          now.was_skipped ? 1 : 0};
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
    const BuffersMade made{required(here, "ids", ids), required(here, "rows", rows)};
    pull_rows(store, read_key(here, key), read_tensor(here, "row_ids", row_ids), tutti::cpu(),
              made);
  });
}

int tutti_kvstore_row_sparse_pull_with(tutti_kvstore* kv, const tutti_row_pull* pull,
                                       tutti_buffer** ids, tutti_buffer** rows) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    const BuffersMade made{required(here, "ids", ids), required(here, "rows", rows)};
    const tutti_row_pull& asked = required(here, "pull", pull);
    const Place place{&here, "pull"};
    pull_rows(store, read_key(place, &asked.key), read_tensor(place, "row_ids", &asked.row_ids),
              read_device(place, asked.device_kind, asked.device_index), made);
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

int tutti_kvstore_save(tutti_kvstore* kv, const char* directory, const tutti_metadata* metadata,
                       int num_metadata) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const auto given = read_saved(here, store, directory, metadata, num_metadata);
    store.save(given.directory, given.metadata);
  });
}

int tutti_kvstore_snapshot(tutti_kvstore* kv, const char* directory, const tutti_metadata* metadata,
                           int num_metadata) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const auto given = read_saved(here, store, directory, metadata, num_metadata);
    tutti::snapshot(store, given.directory, given.metadata);
  });
}

int tutti_kvstore_snapshot_when_due(tutti_kvstore* kv, const char* directory,
                                    const tutti_metadata* metadata, int num_metadata, int* taken) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const auto given = read_saved(here, store, directory, metadata, num_metadata);
    const bool was_taken =
        tutti::snapshot_when_due(store, given.directory, [&] { return given.metadata; });
    if (taken != nullptr) *taken = was_taken ? 1 : 0;
  });
}

int tutti_kvstore_save_async(tutti_kvstore* kv, const char* directory,
                             const tutti_metadata* metadata, int num_metadata,
                             tutti_pending** pending) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const auto given = read_saved(here, store, directory, metadata, num_metadata);
    auto handle = std::make_unique<tutti_pending>();
    handle->pending = store.save_async(given.directory, given.metadata);
    if (pending != nullptr) *pending = handle.release();
  });
}

int tutti_kvstore_load(tutti_kvstore* kv, const char* directory, const tutti_load_options* options,
                       uint64_t* generation) {
  return guarded(__func__, [&](const Place& here) {
    tutti_kvstore& handle = open(here, "kv", kv);
    const std::string path =
        read_on_all(handle.store, [&] { return read_path(here, "directory", directory); });
    handle.loaded = handle.store.load(path, read_options(options));
    handle.warnings = warnings_of(handle.loaded);
    if (generation != nullptr) *generation = handle.loaded.generation;
  });
}

int tutti_kvstore_loaded_metadata(const tutti_kvstore* kv, const char* name, const char** text) {
  return guarded(__func__, [&](const Place& here) {
    const tutti::Metadata& metadata = open(here, "kv", kv).loaded.metadata;
    const auto found = metadata.find(&required(here, "name", name));
    required(here, "text", text) = found == metadata.end() ? nullptr : found->second.c_str();
  });
}

int tutti_kvstore_loaded_warnings(const tutti_kvstore* kv, const char** text) {
  return guarded(__func__, [&](const Place& here) {
    required(here, "text", text) = open(here, "kv", kv).warnings.c_str();
  });
}

int tutti_kvstore_save_optimizer_states(tutti_kvstore* kv, const char* path) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    store.save_optimizer_states(read_on_all(store, [&] { return read_path(here, "path", path); }));
  });
}

int tutti_kvstore_load_optimizer_states(tutti_kvstore* kv, const char* path,
                                        const tutti_load_options* options) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    store.load_optimizer_states(read_on_all(store, [&] { return read_path(here, "path", path); }),
                                read_options(options));
  });
}

int tutti_kvstore_stop_requested(const tutti_kvstore* kv, int* requested) {
  return on_store(__func__, kv, [&](const Place& here, const KVStore& store) {
    required(here, "requested", requested) = store.stop_requested() ? 1 : 0;
  });
}

int tutti_kvstore_request_stop(tutti_kvstore* kv) {
  return on_store(__func__, kv, [](const Place&, KVStore& store) { store.request_stop(); });
}
