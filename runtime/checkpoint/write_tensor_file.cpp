// SPDX-License-Identifier: Apache-2.0
//   rank 0      makes the file and asks for its space
//   writers     write their chunks and digest them, then sync
//   rank 0      writes the header, which has all digests, and syncs
#include <cstring>
#include <memory>
#include <optional>
#include <xxhash.h>

#include "tutti/error.hpp"

#include "runtime/checkpoint/data_layout.hpp"
#include "runtime/checkpoint/seal.hpp"
#include "runtime/checkpoint/tensor_file.hpp"

namespace tutti::checkpoint {

namespace {

Header header_of(const Content& content, const std::string& digests) {
  Header header;
  header.metadata = {{kSealName, std::string(kUnsealed)},
                     {kFormatName, std::to_string(kFormat)},
                     {kChunkBytesName, std::to_string(kChunkBytes)},
                     {kDigestsName, digests}};
  header.metadata.insert(header.metadata.end(), content.texts.begin(), content.texts.end());
  for (const Content::Item& item : content.tensors) {
    header.tensors.push_back({item.name, item.tensor.dtype(), item.tensor.shape()});
  }
  lay_out(header.tensors);
  return header;
}

/// One chunk of the data at a time, copied together from the tensors, where disks can fetch it.
class ChunkBuffer {
 public:
  ChunkBuffer(const Content& content, const DataLayout& layout)
      : content_(content),
        layout_(layout),
        memory_(
            Tensor::empty({static_cast<std::int64_t>(kChunkBytes + kBlockBytes)}, DType::uint8)) {
    void* begin = memory_.bytes();
    std::size_t room = memory_.size_bytes();
    bytes_ = static_cast<std::byte*>(std::align(kBlockBytes, kChunkBytes, begin, room));
  }

  std::span<const std::byte> gather(std::uint64_t chunk) {
    const std::uint64_t begin = layout_.begin_of(chunk);
    const std::uint64_t end = layout_.begin_of(chunk + 1);
    layout_.for_each_part(
        begin, end,
        [&](std::size_t tensor, std::uint64_t offset, std::uint64_t from, std::uint64_t to) {
          std::memcpy(bytes_ + (from - begin), content_.tensors[tensor].tensor.bytes() + offset,
                      to - from);
        });
    return {bytes_, end - begin};
  }

 private:
  const Content& content_;
  const DataLayout& layout_;
  Tensor memory_;
  std::byte* bytes_;
};

/// The writers take turns chunk by chunk, so that the disk sees one stream: shares that lie apart
/// took two to three times as long.
struct Turns {
  Turns(std::uint64_t chunks, std::span<const int> writers, int rank)
      : most(most_chunks(chunks, writers)),
        first(static_cast<std::uint64_t>(std::ranges::find(writers, rank) - writers.begin())),
        stride(writers.size()) {
    if (first < stride && first < chunks) count = (chunks - first - 1) / stride + 1;
  }
  [[nodiscard]] std::uint64_t chunk(std::uint64_t index) const { return first + index * stride; }

  std::uint64_t most;
  std::uint64_t count = 0;  ///< chunks that this rank writes
  std::uint64_t first;
  std::uint64_t stride;
};

/// Every rank's digests, in the order of the chunks.
std::string gather_digests(Communicator& ranks, std::vector<std::int64_t>& digests) {
  if (!digests.empty()) {
    ranks.allreduce(view(digests.data(), {static_cast<std::int64_t>(digests.size())}));
  }
  std::string text;
  for (const std::int64_t digest : digests) text += in_hex(static_cast<std::uint64_t>(digest));
  return text;
}

}  // namespace

FileSummary write_tensor_file(Communicator& ranks, const fs::path& path, const Content& content,
                              std::span<const int> writers) {
  const bool is_first = ranks.rank() == 0;
  Header header = header_of(content, {});
  const DataLayout layout(header.tensors);
  const auto digits = static_cast<std::size_t>(layout.chunks()) * kUnsealed.size();
  header = header_of(content, std::string(digits, '0'));
  const std::uint64_t data_begin = to_text(header).size();
  const std::uint64_t file_bytes = data_begin + layout.bytes();
  if (data_begin > kMostHeaderBytes) {  // on all ranks alike
    throw Error(ErrorCode::invalid_argument,
                path.string() + ": the table of its " + std::to_string(header.tensors.size()) +
                    " tensors takes " + std::to_string(data_begin) + " bytes, at most " +
                    std::to_string(kMostHeaderBytes) +
                    " can be read again; use fewer keys, or shorter names",
                ErrorScope::agreed, is_first);
  }

  std::optional<File> file;
  std::optional<ChunkBuffer> buffer;
  ranks.agree([&] {
    if (is_first) file = File::open_new(path);
  });
  ranks.agree([&] {
    if (std::ranges::find(writers, ranks.rank()) == writers.end()) return;
    if (!is_first) file = File::open_to_write(path);
    file->reserve(file_bytes);
    buffer.emplace(content, layout);
  });

  std::vector<std::int64_t> digests(layout.chunks());
  const Turns turns(layout.chunks(), writers, ranks.rank());
  in_rounds(ranks, turns.count, turns.most, [&](std::uint64_t index) {
    const std::uint64_t chunk = turns.chunk(index);
    const auto bytes = buffer->gather(chunk);
    digests[chunk] = static_cast<std::int64_t>(XXH3_64bits(bytes.data(), bytes.size()));
    const std::uint64_t position = data_begin + layout.begin_of(chunk);
    file->write_out(bytes, position);
  });

  std::string text = to_text(header_of(content, gather_digests(ranks, digests)));
  seal(text, kSealPosition);
  ranks.agree([&] {
    if (is_first) file->write(text, 0);
    if (file) file->sync();
  });
  return {file_bytes, text.substr(kSealPosition, kUnsealed.size())};
}

}  // namespace tutti::checkpoint
