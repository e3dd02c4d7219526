// SPDX-License-Identifier: Apache-2.0
// Saving and loading a store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "tutti/kvstore.hpp"

#include "collectives/job/function_ref.hpp"
#include "runtime/checkpoint/disk_writer.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/store_state.hpp"
#include "runtime/store/files/store_snapshots.hpp"

namespace tutti {

/// The files of a store. All calls are collective. Errors: see KVStore.
class StoreFiles {
 public:
  explicit StoreFiles(const StoreState& store)
      : store_(store), group_(store.group), snapshots_(store.group->settings()) {}

  /// Saves the store. `compare` is called once the ranks have agreed to save, before anything is
  /// written. It returns the number of chunks that it has healed, which are then copied to the
  /// GPUs, too.
  void save(const std::filesystem::path& directory, const Metadata& metadata,
            collectives::FunctionRef<std::uint64_t(std::span<Entry* const>)> compare);
  /// Copies what save() saves into the memory of every node.
  void snapshot(const std::filesystem::path& directory, const Metadata& metadata);
  /// False where the next call of is_snapshot_due() would be. Local, the same on all ranks.
  [[nodiscard]] bool may_be_due() { return snapshots_.may_be_due(); }
  bool is_snapshot_due();
  /// A snapshot; where there is too little memory, a warning and no more of them.
  bool take_due_snapshot(const std::filesystem::path& directory, const Metadata& metadata);
  /// Nothing where there is too little memory, as a warning says once: then save() is left.
  std::optional<Pending> save_async(const std::filesystem::path& directory,
                                    const Metadata& metadata);
  /// A call begins that counts as a push. Local.
  void count_push() noexcept { snapshots_.count_push(); }
  /// Reads and verifies everything, compares it with the contents of the store, and lets every rank
  /// agree before it delivers: until then an error has changed nothing.
  LoadResult load(const std::filesystem::path& directory, const LoadOptions& options);
  void save_optimizer_states(const std::filesystem::path& path);
  void load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options);

 private:
  /// Errors: invalid_argument if the store runs no optimizer.
  void require_optimizer() const;
  template <class Body>
  void with_content(const char* call, const std::filesystem::path& directory,
                    const Metadata& metadata, Body body);
  /// Returns the folder of the snapshot in this node's memory.
  std::filesystem::path take_snapshot(const char* call, const std::filesystem::path& directory,
                                      const Metadata& metadata);
  Pending start_copy(Communicator& ranks, const std::filesystem::path& directory,
                     const Metadata& metadata);
  /// Writes a warning, on rank 0.
  void warn(const std::string& text);
  /// Returns when what save_async() has begun is on the disk. Errors: io, with which it failed.
  void finish_copy(Communicator& ranks);
  std::optional<checkpoint::LoadedStore> read_newest(Communicator& ranks,
                                                     const std::filesystem::path& directory,
                                                     const LoadOptions& options,
                                                     const std::string& owner);
  void log_save(const std::filesystem::path& directory, const checkpoint::Saved& saved);
  void remember(const std::filesystem::path& directory, const LoadResult& loaded,
                bool weights_only);

  const StoreState store_;
  std::shared_ptr<Group> group_;
  std::map<std::filesystem::path, std::uint64_t> good_;  ///< directory -> generation known whole
  StoreSnapshots snapshots_;
  bool has_warned_ = false;           ///< that save_async() has no memory for a snapshot
  std::filesystem::path copying_to_;  ///< on all ranks, until finish_copy(); else empty
  checkpoint::DiskWriter writer_;     ///< used by rank 0; ends before the snapshots go
};

}  // namespace tutti
