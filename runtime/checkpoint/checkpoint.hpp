// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a directory of generations, each of which is whole. The store says what a generation
// holds (runtime/store/files/store_files.cpp); this file writes it and reads it back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/checkpoint.hpp"
#include "tutti/communicator.hpp"

#include "runtime/checkpoint/tensor_file.hpp"

namespace tutti::checkpoint {

/// What a checkpoint holds. All but the residuals is equal on every rank.
struct StoreContent {
  Content weights;
  std::optional<Content> optimizer;  ///< if the store runs one
  std::optional<Content> residuals;  ///< this rank's; alike in name and shape on all
  Metadata metadata;
  std::uint64_t pushes = 0;  ///< that the store has made
};

/// A generation that was read and verified as a whole; nothing has been changed yet.
struct LoadedStore {
  TensorFile weights;
  std::optional<TensorFile> optimizer;
  std::vector<TensorFile> residuals;  ///< one for each rank that saved, or none
  std::string residuals_owner;        ///< whose were saved; empty if none were, or none are wanted
  LoadResult result;
  /// The ranks that have read it together, among which deliver() is collective: all, or this
  /// node's.
  Communicator readers;
};

/// What of a generation is read, and so has to be whole. Nobody looks at the data of what is left
/// out.
struct Wanted {
  bool weights_only = false;
  /// A text that the header of residuals has, and what it says of those that are wanted.
  std::string owner_name;
  std::string owner;
  int ranks = 1;  ///< of the store
};

/// A generation that is there for good.
struct Saved {
  std::uint64_t generation = 0;
  std::vector<std::string> remaining;  ///< on rank 0: what should be gone and is not, and why
};

/// Writes a new generation, and removes all but two: the new one and `good`, the one that is known
/// to be whole, else the newest of the others. Collective.
/// Errors  agreed: io. The older generations are untouched, and nothing is left of the new one.
Saved save(Communicator& ranks, const fs::path& directory, const StoreContent& content,
           std::optional<std::uint64_t> good);

/// Copies a snapshot (snapshots.hpp) to the disk, as a generation that save() could have written.
/// Local: by rank 0 alone, on any thread. Errors: io, as save().
Saved save_copy(const fs::path& snapshot, const fs::path& directory,
                std::optional<std::uint64_t> good);

/// How many pushes the newest generation has whose manifest can be read; nothing if there is none.
/// Collective. Errors  agreed: io.
std::optional<std::uint64_t> newest_pushes(Communicator& ranks, const fs::path& directory);

/// Reads the newest generation that is not damaged. Empty if there is none at all. Collective.
/// Errors  agreed: io; corrupt_file if all are damaged, with the reason of each.
std::optional<LoadedStore> load(Communicator& ranks, const fs::path& directory,
                                const Wanted& wanted);

/// One tensor file alone, written beside its place and then renamed. Collective. Errors: as save.
void save_file(Communicator& ranks, const fs::path& path, const Content& content);
/// Collective. Errors  agreed: io, corrupt_file.
TensorFile load_file(Communicator& ranks, const fs::path& path);

}  // namespace tutti::checkpoint
