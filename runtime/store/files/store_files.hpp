// SPDX-License-Identifier: Apache-2.0
// Saving and loading a store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "tutti/kvstore.hpp"

#include "collectives/job/function_ref.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/store_state.hpp"

namespace tutti {

/// The files of a store. All calls are collective. Errors: see KVStore.
class StoreFiles {
 public:
  explicit StoreFiles(const StoreState& store) : store_(store), group_(store.group) {}

  /// Saves the store. `compare` is called once the ranks have agreed to save, before anything is
  /// written. It returns the number of chunks that it has healed, which are then copied to the
  /// GPUs, too.
  void save(const std::filesystem::path& directory, const Metadata& metadata,
            collectives::FunctionRef<std::uint64_t(std::span<Entry* const>)> compare);
  /// Reads and verifies everything, compares it with the contents of the store, and lets every rank
  /// agree before it delivers: until then an error has changed nothing.
  LoadResult load(const std::filesystem::path& directory, const LoadOptions& options);
  void save_optimizer_states(const std::filesystem::path& path);
  void load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options);

 private:
  /// Errors: invalid_argument if the store runs no optimizer.
  void require_optimizer() const;
  void remember(const std::filesystem::path& directory, std::uint64_t generation,
                bool weights_only);

  const StoreState store_;
  std::shared_ptr<Group> group_;
  std::map<std::filesystem::path, std::uint64_t> good_;  ///< directory -> generation known whole
};

}  // namespace tutti
