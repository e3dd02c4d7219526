// SPDX-License-Identifier: Apache-2.0
// What a disk does for a program that writes one file.
#pragma once

#include <cstddef>
#include <filesystem>

namespace apps::checkpoint {

/// Seconds that it takes to make a file of this size and sync it: space asked for, then written in
/// order in parts of 4 MiB, past the page cache where the file system can (O_DIRECT), as in
/// `dd bs=4M oflag=direct conv=fsync`. The file is removed, untimed. Local. Errors: io.
double seconds_to_write(const std::filesystem::path& path, std::size_t bytes);

}  // namespace apps::checkpoint
