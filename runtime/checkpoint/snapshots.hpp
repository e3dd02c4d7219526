// SPDX-License-Identifier: Apache-2.0
// The snapshots of a store for one directory: generations in the memory of every node.
//
//   FOLDER/                         of the job; outlives the ranks, if the launcher has named it
//     HOST.0/DIGEST/                of a node (the first of its host) and a directory
//       generation-7/               whole; the files of a checkpoint
//       generation-8.partial/       being filled: the memory of generation 6 once more
//       progress                    the number of the push that the node has begun last
//
// A node has a snapshot for itself: its ranks copy a part each, and no other node's memory is
// needed to load it. A generation that has its name is whole, as on the disk; each node keeps the
// newest one while it fills another. One that is being copied to the disk is left alone as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/generations.hpp"
#include "runtime/checkpoint/memory_files.hpp"

namespace tutti::checkpoint {

/// The folder of a job's snapshots, as a node's first rank sees it. Not collective.
class SnapshotFolder {
 public:
  /// `path` empty: a folder of this store's own, which goes with it. What killed jobs have left of
  /// such folders is removed. Errors: io, also if another user could have made the folder.
  explicit SnapshotFolder(fs::path path);
  ~SnapshotFolder();
  SnapshotFolder(const SnapshotFolder&) = delete;
  SnapshotFolder& operator=(const SnapshotFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::optional<File> lock_;  ///< of an own folder: who holds it is alive
};

/// All calls are collective over the store's ranks, unless they say otherwise.
class Snapshots {
 public:
  /// `folder` is for the first rank of each node. Errors  agreed: io.
  Snapshots(Communicator& ranks, const fs::path& folder, const fs::path& directory);

  /// Takes one, unless it is refused. `held` is on rank 0 the one that is being copied to the disk.
  /// Returns its number. Errors  agreed: out_of_memory, io. The newest one before is untouched.
  std::uint64_t take(const StoreContent& content, std::uint64_t held);

  /// Reads the newest one, if there is one of more pushes than `on_disk`. Nodes that do not have
  /// it, or whose own is damaged, get it from a node that has. Errors  agreed: io.
  std::optional<LoadedStore> load(const Wanted& wanted, std::optional<std::uint64_t> on_disk);

  /// The number of the last push that any node knows of.
  std::uint64_t last_push();
  /// Push `number` begins. Local; a store to memory.
  void note_push(std::uint64_t number) noexcept {
    if (progress_ != nullptr) {
      std::atomic_ref(*progress_).store(number, std::memory_order_relaxed);
    }
  }
  /// The number of the last one that was begun.
  [[nodiscard]] std::uint64_t newest() const { return last_; }
  [[nodiscard]] fs::path folder_of(std::uint64_t number) const {
    return generations_.folder(number);
  }

 private:
  struct Found {
    std::int64_t pushes = -1;
    std::int64_t number = 0;
    friend auto operator<=>(const Found&, const Found&) = default;
  };
  class OnNode;

  [[nodiscard]] bool is_first() const { return node_.rank() == 0; }
  fs::path make_folder_of_node(const fs::path& folder, const fs::path& directory);
  void begin(std::uint64_t number, std::uint64_t bytes, std::uint64_t held) const;
  void require_memory(const fs::path& reused, std::uint64_t bytes) const;
  [[nodiscard]] std::vector<Found> found_here() const;
  [[nodiscard]] std::vector<Found> newest_of_nodes(Found& newest);
  void drop(std::uint64_t number) const;
  void hand_over(const Found& newest, const std::vector<Found>& of_ranks);

  Communicator ranks_;
  Communicator node_;  ///< the ranks of this node
  Generations generations_;
  MemoryFiles files_;
  std::uint64_t last_ = 0;
  std::uint64_t* progress_ = nullptr;  ///< on the node's first rank
};

}  // namespace tutti::checkpoint
