// SPDX-License-Identifier: Apache-2.0
// Saving what a store holds, and loading it.
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

/// All calls are collective. Errors: see KVStore.
class StoreFiles {
 public:
  explicit StoreFiles(const StoreState& store) : store_(store), group_(store.group) {}

  /// `compare` is called once the ranks have agreed to save, before anything is written. It returns
  /// how much it has healed, which then goes to the GPUs, too.
  void save(const std::filesystem::path& directory, const Metadata& metadata,
            collectives::FunctionRef<std::uint64_t(std::span<Entry* const>)> compare);
  /// Reads and verifies everything, compares it with what the store holds, and lets every rank
  /// agree before it delivers: what goes wrong until then has changed nothing.
  LoadResult load(const std::filesystem::path& directory, const LoadOptions& options);
  void save_optimizer_states(const std::filesystem::path& path);
  void load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options);

 private:
  /// Errors: invalid_argument if the store runs none.
  void require_optimizer() const;
  void remember(const std::filesystem::path& directory, std::uint64_t generation,
                bool weights_only);

  const StoreState store_;
  std::shared_ptr<Group> group_;
  std::map<std::filesystem::path, std::uint64_t> good_;  ///< directory -> generation known whole
};

}  // namespace tutti
