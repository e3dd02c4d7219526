// SPDX-License-Identifier: Apache-2.0
// A safetensors file that all ranks write and read together, and that shows every damaged byte.
//
//   header: the seal of length and header, the digest of each chunk of the data, texts, tensors
//   data:   | chunk 0 | chunk 1 | chunk 2 | ... | chunk k |     of kChunkBytes, the last shorter
//   written by  rank 0    rank 1    rank 2 ...                  in turns
//   read by     rank 0 ...      rank 1 ...       rank P-1       contiguous shares
//
// The bytes are a function of the content alone, whatever the number of ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/tensor.hpp"

#include "runtime/base/file.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace tutti::checkpoint {

inline constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
/// How much a rank reads or writes between two agreements: no rank waits long for another's disk,
/// and an error ends the work early.
inline constexpr std::uint64_t kRoundChunks = 64;

/// What a file will hold. Tensors may not change while it is written, but may move in memory.
struct Content {
  struct Item {
    std::string name;
    ConstTensorView tensor;
  };
  std::vector<Item> tensors;
  Texts texts;  ///< for the header; names of this library's own begin with "tutti."
};

/// Writes a new file, which must not exist yet, and syncs it (the folder is the caller's). The
/// ranks in `writers`, rank 0 among them, see the same file and write a share each. Collective,
/// with equal content on every rank. Errors  agreed: io, of the lowest rank that has one; what was
/// written is left behind.
FileSummary write_tensor_file(Communicator& ranks, const fs::path& path, const Content& content,
                              std::span<const int> writers);

class MemoryFiles;

/// Writes the file that write_tensor_file() would, into the memory of a node, whose ranks copy a
/// share each. An existing file is written over. Collective over the node's ranks. Errors  agreed:
/// out_of_memory, io.
FileSummary write_memory_file(Communicator& node, MemoryFiles& files, const fs::path& path,
                              const Content& content);

/// A file that has been read and verified. deliver() brings its tensors to where they belong.
class TensorFile {
 public:
  /// The ranks that see rank 0's file read a share each, into ordinary memory. A file in the memory
  /// of a node, whose ranks these are, they map into `memory`, which has to stay, and verify a
  /// share each where it is. Collective. Errors  agreed: io; corrupt_file, naming the tensors that
  /// are hit.
  static TensorFile read(Communicator& ranks, const fs::path& path, MemoryFiles* memory = nullptr);

  /// The header alone, which is verified; no data is looked at. Collective. Errors: as read().
  static Header read_header(Communicator& ranks, const fs::path& path);

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] const FileSummary& summary() const { return summary_; }

  /// Gives every rank all tensors: destinations[i] is the memory for header().tensors[i].
  /// Collective. Errors: communication, timeout (failed).
  void deliver(Communicator& ranks, std::span<std::byte* const> destinations) const;

 private:
  void read_share(Communicator& ranks, const std::optional<File>& file, std::uint64_t data_begin);
  void verify_share(Communicator& ranks) const;

  fs::path path_;
  Header header_;
  FileSummary summary_;
  std::vector<int> readers_;
  std::shared_ptr<const Tensor> share_;  ///< this rank's chunks of the data; null if it reads none
  std::span<const std::byte> mapped_;  ///< all data of a file that is mapped on all ranks, or none
};

}  // namespace tutti::checkpoint
