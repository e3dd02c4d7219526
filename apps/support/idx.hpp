// SPDX-License-Identifier: Apache-2.0
// Reads IDX files, the format of MNIST and its relatives, gzipped or plain.
//
//   file  = 0x00 0x00 0x08 rank extent*rank byte*(product of the extents)
//   extent = 32 bits, most significant byte first
//
// Source  http://yann.lecun.com/exdb/mnist, "The IDX file format"; 0x08 is "unsigned byte", the
// only element type read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace apps {

struct IdxArray {
  std::vector<std::uint32_t> extents;
  std::vector<std::uint8_t> bytes;
};

/// Reads a whole file.
/// Errors  io: it cannot be opened or read. corrupt_file: it is truncated, its gzip checksum is
///         wrong, it is no IDX file of bytes with `rank` extents, or something follows the data.
///         Every text starts with the file's path.
IdxArray read_idx(const std::filesystem::path& path, std::size_t rank);

}  // namespace apps
