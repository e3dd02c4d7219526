// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: reading and writing it.
//
//   file    = length header data
//   length  = 8 bytes, little-endian: bytes of the header
//   header  = JSON object { name: tensor ..., "__metadata__": { name: text ... } }, spaces
//   tensor  = { "dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end] }   in the data
//   data    = the tensors' elements, little-endian, row-major; no byte belongs to none or to two
//
// Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/shape.hpp"

namespace tutti::checkpoint {

/// In the order in which they are written.
using Texts = std::vector<std::pair<std::string, std::string>>;

struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin = 0;  ///< offset in the data, in bytes
  std::uint64_t end = 0;
};

struct Header {
  std::vector<TensorInfo> tensors;  ///< in the order of the header
  Texts metadata;

  [[nodiscard]] std::uint64_t data_bytes() const;
  /// The text under a name of the metadata. Errors: corrupt_file if there is none.
  [[nodiscard]] const std::string& text(std::string_view name) const;
};

inline constexpr std::size_t kLengthBytes = 8;
/// The format's own limit; a longer header is refused before it is read.
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

/// Gives the tensors their offsets, wide elements first, so that each is aligned to its own size.
void lay_out(std::vector<TensorInfo>& tensors);

/// The tensors in the order of the data.
std::vector<std::size_t> by_offset(const std::vector<TensorInfo>& tensors);

/// Length and header, padded with spaces so that the data begin at a multiple of kDataAlignment.
inline constexpr std::size_t kDataAlignment = 4096;
std::string to_text(const Header& header);

/// From the first kLengthBytes of a file of `file_bytes`: the length of the header.
/// Errors  corrupt_file, if no such file can begin like this.
std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes);

/// Reads any bytes, in memory proportional to their number. Every offset of the result lies in the
/// data, and has the length that shape and dtype ask for.
/// Errors  corrupt_file, which says what is wrong and with which tensor.
Header parse_header(std::string_view json, std::uint64_t data_bytes);

/// Errors  invalid_argument if a text cannot be part of a JSON file: `what` is not UTF-8.
void require_utf8(const std::string& text, const std::string& what);

}  // namespace tutti::checkpoint
