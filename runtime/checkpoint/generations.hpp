// SPDX-License-Identifier: Apache-2.0
// The generations of checkpoints in a directory, as one rank sees them. Not collective.
//
//   DIRECTORY/generation-7          complete, and never changed again
//   DIRECTORY/generation-8          complete, the newest
//   DIRECTORY/generation-9.partial  being written, or left behind by a save that was interrupted
//   DIRECTORY/generation-6.removed  being removed, or left behind by an interrupted removal
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file.hpp"

namespace tutti::checkpoint {

class Generations {
 public:
  explicit Generations(fs::path directory) : directory_(std::move(directory)) {}

  /// The complete ones, newest first; none if there is no such directory. Errors: io.
  [[nodiscard]] std::vector<std::uint64_t> list() const;
  [[nodiscard]] fs::path folder(std::uint64_t generation) const;
  [[nodiscard]] fs::path partial(std::uint64_t generation) const;
  [[nodiscard]] const fs::path& directory() const { return directory_; }

  /// Makes the directory if only its last part is missing. Errors: io.
  void make_directory() const;
  /// Removes what interrupted saves left behind. Returns what remains, and why: a reader's file on
  /// NFS, or another user's, is no reason not to save. Errors: io if the directory cannot be read.
  [[nodiscard]] std::vector<std::string> remove_leftovers() const;
  /// Something that an interrupted save left behind, if there is any. Errors: io.
  [[nodiscard]] std::optional<fs::path> any_partial() const;
  /// A number above all that a name has, of whatever is there. Errors: io.
  [[nodiscard]] std::uint64_t next() const;
  /// Turns the partial folder, whose files are synced, into the generation. Durable when it
  /// returns. Errors: io.
  void publish(std::uint64_t generation) const;
  /// Removes all generations but two: `newest`, and `good` or else the one before. Returns what
  /// remains beyond these, and why. Errors: io if the directory cannot be read.
  [[nodiscard]] std::vector<std::string> prune(std::uint64_t newest,
                                               std::optional<std::uint64_t> good) const;

 private:
  fs::path directory_;
};

}  // namespace tutti::checkpoint
