// SPDX-License-Identifier: Apache-2.0
// The parts of checkpoint-benchmark: its command line, the weights that it saves, and the disk's
// own speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <tutti/kvstore.hpp>

namespace apps::checkpoint {

struct Options {
  std::size_t bytes = 0;
  int keys = 0;
  int repeats = 0;
  std::filesystem::path directory;  ///< folder in which the folder of the files is made
  bool help = false;
  bool version = false;
};

/// Reads the command line. Errors  invalid_argument: a value that means nothing.
Options parse_options(int argc, const char* const* argv);

/// The text of --help.
std::string help();

/// Weights whose every element is known, in a store.
class Weights {
 public:
  /// Puts the weights into the store. Collective.
  Weights(tutti::KVStore& kv, const Options& options);

  /// Makes all elements zero, with one push. Collective.
  void forget(tutti::KVStore& kv) const;

  /// The number of elements of this rank's replica that differ from the weights that were put
  /// there. Local.
  [[nodiscard]] std::int64_t wrong(const tutti::KVStore& kv) const;

  [[nodiscard]] std::size_t bytes() const { return keys_.size() * count_ * sizeof(float); }

 private:
  std::size_t count_;  ///< elements of one key
  std::vector<tutti::Key> keys_;
};

/// Seconds that it takes to make a file of this size and sync it: space asked for, then written in
/// order in parts of 4 MiB, past the page cache where the file system can (O_DIRECT), as in
/// `dd bs=4M oflag=direct conv=fsync`. The file is removed, untimed. Local. Errors: io.
double seconds_to_write(const std::filesystem::path& path, std::size_t bytes);

}  // namespace apps::checkpoint
