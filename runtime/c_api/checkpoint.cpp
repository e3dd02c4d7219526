// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/checkpoint.h"

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/on_store.hpp"

using namespace tutti::c_api;  // NOLINT: what follows is their face
using tutti::KVStore;

namespace {

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

}  // namespace

int tutti_kvstore_save(tutti_kvstore* kv, const char* directory, const tutti_metadata* metadata,
                       int num_metadata) {
  return on_store(__func__, kv, [&](const Place& here, KVStore& store) {
    const auto given = read_on_all(store, [&] {
      return std::pair(read_path(here, "directory", directory),
                       read_metadata(here, metadata, num_metadata));
    });
    store.save(given.first, given.second);
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
