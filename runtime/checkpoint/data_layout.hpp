// SPDX-License-Identifier: Apache-2.0
// The data of a tensor file as one range of bytes, and which rank handles which chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/tensor_file.hpp"

namespace tutti::checkpoint {

/// Names in the header's metadata.
inline constexpr const char* kSealName = "tutti.header_xxh3";
inline constexpr const char* kFormatName = "tutti.format";
inline constexpr const char* kChunkBytesName = "tutti.chunk_bytes";
inline constexpr const char* kDigestsName = "tutti.chunk_xxh3";
inline constexpr std::string_view kSealBegin = "{\"__metadata__\":{\"tutti.header_xxh3\":\"";
inline constexpr std::size_t kSealPosition = kLengthBytes + kSealBegin.size();

/// Chunks first .. last - 1.
struct Chunks {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  [[nodiscard]] std::uint64_t count() const { return last - first; }
};

/// The most chunks that a rank has, if they are spread evenly.
inline std::uint64_t most_chunks(std::uint64_t chunks, std::span<const int> ranks) {
  return (chunks + ranks.size() - 1) / ranks.size();
}

/// The chunks that `rank` reads; none if it is not among `ranks`.
inline Chunks share_of(std::uint64_t chunks, std::span<const int> ranks, int rank) {
  const auto place = std::ranges::find(ranks, rank);
  if (place == ranks.end()) return {};
  const auto index = static_cast<std::uint64_t>(place - ranks.begin());
  return {chunks * index / ranks.size(), chunks * (index + 1) / ranks.size()};
}

class DataLayout {
 public:
  explicit DataLayout(const std::vector<TensorInfo>& tensors)
      : tensors_(tensors), order_(by_offset(tensors)) {
    for (const TensorInfo& tensor : tensors) bytes_ = std::max(bytes_, tensor.end);
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t chunks() const { return (bytes_ + kChunkBytes - 1) / kChunkBytes; }
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t chunk) const {
    return std::min(chunk * kChunkBytes, bytes_);
  }

  /// Calls visit(tensor, offset in it, begin, end) for each tensor's part of a range of the data.
  template <class Visit>
  void for_each_part(std::uint64_t begin, std::uint64_t end, Visit visit) const {
    auto at =
        std::ranges::upper_bound(order_, begin, {}, [&](std::size_t i) { return tensors_[i].end; });
    for (; at != order_.end() && tensors_[*at].begin < end; ++at) {
      const TensorInfo& tensor = tensors_[*at];
      const std::uint64_t from = std::max(begin, tensor.begin);
      const std::uint64_t to = std::min(end, tensor.end);
      if (from < to) visit(*at, from - tensor.begin, from, to);
    }
  }

 private:
  const std::vector<TensorInfo>& tensors_;
  std::vector<std::size_t> order_;
  std::uint64_t bytes_ = 0;
};

/// Calls work(0), ..., work(mine - 1), and lets all ranks agree after every kRoundChunks of them.
/// No rank has more than `most`, which is the same on all. Collective.
template <class Work>
void in_rounds(Communicator& ranks, std::uint64_t mine, std::uint64_t most, Work work) {
  for (std::uint64_t done = 0; done < most; done += kRoundChunks) {
    ranks.agree([&] {
      const std::uint64_t last = std::min(done + kRoundChunks, mine);
      for (std::uint64_t i = done; i < last; ++i) work(i);
    });
  }
}

}  // namespace tutti::checkpoint
