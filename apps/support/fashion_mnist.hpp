// SPDX-License-Identifier: Apache-2.0
// The Fashion-MNIST images and labels (Xiao, Rasul, Vollgraf, 2017), or any data set in the same
// four files, such as MNIST itself.
//
// They are IDX files, gzipped or plain:
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

/// Reads a whole IDX file.
/// Errors  io: it cannot be opened or read. corrupt_file: it is truncated, its gzip checksum is
///         wrong, it is no IDX file of bytes with `rank` extents, or more bytes follow the data.
///         Every text starts with the file's path.
///         wrong, it is no IDX file of bytes with `rank` extents, or something follows the data.
///         Every text starts with the file's path.
IdxArray read_idx(const std::filesystem::path& path, std::size_t rank);

inline constexpr int kImagePixels = 28 * 28;
inline constexpr int kImageClasses = 10;

/// Mean and deviation of the training pixels, in [0, 1]; images enter the network as (pixel - mean)
/// / deviation.
inline constexpr float kPixelMean = 0.2860F;
inline constexpr float kPixelDeviation = 0.3530F;

struct LabelledImages {
  std::vector<std::uint8_t> pixels;  ///< [count()][kImagePixels]
  std::vector<std::uint8_t> labels;  ///< [count()], each below kImageClasses
  [[nodiscard]] std::size_t count() const noexcept { return labels.size(); }
};

struct FashionMnist {
  LabelledImages train;
  LabelledImages test;
};

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz of `directory`; `limit` > 0 keeps the
/// first `limit` images of either set.
/// Errors  invalid_argument: a file is missing or damaged, with its name and how to get it.
FashionMnist load_fashion_mnist(const std::filesystem::path& directory, std::size_t limit = 0);

}  // namespace apps
