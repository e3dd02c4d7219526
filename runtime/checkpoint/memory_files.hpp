// SPDX-License-Identifier: Apache-2.0
// Files in memory that the ranks of a node fill together, again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <sys/types.h>

#include "runtime/base/file.hpp"
#include "runtime/job/arena.hpp"

namespace tutti::checkpoint {

/// "390 KiB", and from 10 MiB on "40 MiB".
std::string in_kib_or_mib(std::uint64_t bytes);

/// Makes the file, for its user alone, or gives the one that is there this size. All of its pages
/// are there afterwards, so that writing to a mapping of it cannot fail. Errors: io, out_of_memory.
void make_memory_file(const fs::path& path, std::uint64_t bytes);

/// The mappings of one rank. They are kept while a file is used again, under whatever name: making
/// them anew takes several times as long as filling the file.
class MemoryFiles {
 public:
  /// The bytes of a file of this size, which may be written. Errors: io, out_of_memory.
  std::span<std::byte> map(const fs::path& path, std::uint64_t bytes);

 private:
  std::map<ino_t, Mapping> mappings_;
};

}  // namespace tutti::checkpoint
