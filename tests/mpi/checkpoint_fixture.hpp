// SPDX-License-Identifier: Apache-2.0
// A folder that all ranks of a test see, and stores to save into it.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/mpi/store_fixture.hpp"
#include "tests/support/oracle.hpp"

namespace test {

namespace fs = std::filesystem;

/// Runs `body` with the path of a new, empty folder; the path is the same on all ranks.
inline void with_folder(const std::function<void(const fs::path& folder)>& body) {
  static int count = 0;  // tests of one program follow one another
  const double process = largest(rank() == 0 ? static_cast<double>(getpid()) : 0.0);
  const fs::path folder = fs::temp_directory_path() /
                          ("tutti_checkpoint_test." + std::to_string(static_cast<long>(process)) +
                           "." + std::to_string(count++));
  if (rank() == 0) fs::create_directory(folder);
  REQUIRE(agree(true));
  body(folder);
  REQUIRE(agree(true));
  std::error_code ignored;
  if (rank() == 0) fs::remove_all(folder, ignored);
}

/// The folder that a store of this type saves into: "local" stores have one on each rank.
inline fs::path directory_of(const tutti::KVStore& kv, const fs::path& folder) {
  return kv.type() == "dist" ? folder / "dist"
                             : folder / (std::string(kv.type()) + std::to_string(rank()));
}

/// Changes one byte of a file; on rank 0 alone.
inline void damage(const fs::path& path, std::streamoff position) {
  if (rank() == 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(position);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(position);
    file.put(byte);
  }
  REQUIRE(agree(true));
}

/// The folder of a generation.
inline fs::path generation(const fs::path& directory, int number) {
  return directory / ("generation-" + std::to_string(number));
}

/// The keys 3 and 5.
inline tutti::KVStore store_with_keys() {
  tutti::KVStore kv = dist();
  kv.init({3, 5}, {filled(2), filled(4, {400})});
  return kv;
}

/// The keys hold what they held, and the store goes on.
inline void check_unchanged(tutti::KVStore& kv, Place where = Place::current()) {
  CHECK(all_are(stored(kv, 3), 2, where));
  CHECK(all_are(stored(kv, 5), 4, where));
  kv.push(3, filled(rank() == 0 ? 2 : 0));
  CHECK(all_are(stored(kv, 3), 2, where));
}

}  // namespace test
