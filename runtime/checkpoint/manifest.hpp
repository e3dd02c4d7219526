// SPDX-License-Identifier: Apache-2.0
// What a generation consists of: the last file that is written into it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tutti/checkpoint.hpp"

#include "runtime/checkpoint/writer.hpp"

namespace tutti::checkpoint {

inline constexpr std::uint64_t kFormat = 1;  ///< version of manifest.json and of the data files
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{64} << 20;

/// One data file: its size, and the seal of its header, which has the digests of its data.
struct FileSummary {
  std::uint64_t bytes = 0;
  std::string seal;
  friend bool operator==(const FileSummary&, const FileSummary&) = default;
};

struct Manifest {
  std::uint64_t generation = 0;
  std::map<std::string, FileSummary> files;  ///< by the file's name
  Metadata metadata;
  std::uint64_t pushes = 0;  ///< of the store until then; 0 in manifests of earlier versions
  Writer writer{};           ///< empty in manifests of earlier versions
};

/// One sealed JSON object in a line. Errors: invalid_argument if the metadata are too much.
std::string to_text(const Manifest& manifest);

/// Errors  corrupt_file: a changed byte, or anything that to_text does not write; io: a format
///         later than kFormat.
Manifest parse_manifest(std::string_view text);

/// Errors: io, if `format` is later than kFormat.
void require_known_format(std::uint64_t format);

}  // namespace tutti::checkpoint
