// SPDX-License-Identifier: Apache-2.0
//   rank 0      makes the file and asks for its space
//   writers     write their chunks and digest them, then sync
//   rank 0      writes the header, which has all digests, and syncs
//
// In memory every rank of the node copies one contiguous share into the file, which it has mapped.
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <xxhash.h>

#include "tutti/error.hpp"

#include "runtime/checkpoint/data_layout.hpp"
#include "runtime/checkpoint/memory_files.hpp"
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

/// The offset at which a file's data begin, which depends on the number of digests in its header,
/// and the file's size.
struct Extent {
  std::uint64_t data_begin;
  std::uint64_t file_bytes;
};

Extent extent_of(const Content& content, const Header& header, const DataLayout& layout,
                 const fs::path& path, bool is_first) {
  const auto digits = static_cast<std::size_t>(layout.chunks()) * kUnsealed.size();
  const std::uint64_t data_begin = to_text(header_of(content, std::string(digits, '0'))).size();
  if (data_begin <= kMostHeaderBytes) return {data_begin, data_begin + layout.bytes()};
  throw Error(ErrorCode::invalid_argument,  // on all ranks alike
              path.string() + ": the table of its " + std::to_string(header.tensors.size()) +
                  " tensors takes " + std::to_string(data_begin) + " bytes, at most " +
                  std::to_string(kMostHeaderBytes) +
                  " can be read again; use fewer keys, or shorter names",
              ErrorScope::agreed, is_first);
}

/// The digests of all chunks in a sealed header. Collective.
std::string sealed_header(Communicator& ranks, const Content& content,
                          std::vector<std::int64_t>& digests) {
  std::string text = to_text(header_of(content, gather_digests(ranks, digests)));
  seal(text, kSealPosition);
  return text;
}

/// Copies a range of the data to `to`, and digests it on the way.
class CopyWithDigest {
 public:
  CopyWithDigest(const Content& content, const DataLayout& layout)
      : content_(content), layout_(layout), state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
  }

  std::int64_t run(std::uint64_t chunk, std::byte* to) {
    constexpr std::uint64_t kAtOnce = std::uint64_t{256} << 10;  // stays in a core's cache
    XXH3_64bits_reset(state_.get());
    const std::uint64_t end = layout_.begin_of(chunk + 1);
    for (std::uint64_t from = layout_.begin_of(chunk); from < end; from += kAtOnce) {
      to = copy(from, std::min(from + kAtOnce, end), to);
    }
    return static_cast<std::int64_t>(XXH3_64bits_digest(state_.get()));
  }

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  std::byte* copy(std::uint64_t begin, std::uint64_t end, std::byte* to) {
    layout_.for_each_part(
        begin, end,
        [&](std::size_t tensor, std::uint64_t offset, std::uint64_t from, std::uint64_t until) {
          const std::byte* source = content_.tensors[tensor].tensor.bytes() + offset;
          std::memcpy(to + (from - begin), source, until - from);
          XXH3_64bits_update(state_.get(), source, until - from);
        });
    return to + (end - begin);
  }

  const Content& content_;
  const DataLayout& layout_;
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace

FileSummary write_tensor_file(Communicator& ranks, const fs::path& path, const Content& content,
                              std::span<const int> writers) {
  const bool is_first = ranks.rank() == 0;
  const Header header = header_of(content, {});
  const DataLayout layout(header.tensors);
  const Extent extent = extent_of(content, header, layout, path, is_first);

  std::optional<File> file;
  std::optional<ChunkBuffer> buffer;
  ranks.agree([&] {
    if (is_first) file = File::open_new(path);
  });
  ranks.agree([&] {
    if (std::ranges::find(writers, ranks.rank()) == writers.end()) return;
    if (!is_first) file = File::open_to_write(path);
    file->reserve(extent.file_bytes);
    buffer.emplace(content, layout);
  });

  std::vector<std::int64_t> digests(layout.chunks());
  const Turns turns(layout.chunks(), writers, ranks.rank());
  in_rounds(ranks, turns.count, turns.most, [&](std::uint64_t index) {
    const std::uint64_t chunk = turns.chunk(index);
    const auto bytes = buffer->gather(chunk);
    digests[chunk] = static_cast<std::int64_t>(XXH3_64bits(bytes.data(), bytes.size()));
    const std::uint64_t position = extent.data_begin + layout.begin_of(chunk);
    file->write_out(bytes, position);
  });

  const std::string text = sealed_header(ranks, content, digests);
  ranks.agree([&] {
    if (is_first) file->write(text, 0);
    if (file) file->sync();
  });
  return {extent.file_bytes, text.substr(kSealPosition, kUnsealed.size())};
}

FileSummary write_memory_file(Communicator& node, MemoryFiles& files, const fs::path& path,
                              const Content& content) {
  const bool is_first = node.rank() == 0;
  const Header header = header_of(content, {});
  const DataLayout layout(header.tensors);
  const Extent extent = extent_of(content, header, layout, path, is_first);
  node.agree([&] {
    if (is_first) make_memory_file(path, extent.file_bytes);
  });
  std::span<std::byte> file;
  node.agree([&] { file = files.map(path, extent.file_bytes); });

  std::vector<int> all(static_cast<std::size_t>(node.size()));
  std::iota(all.begin(), all.end(), 0);
  const Chunks mine = share_of(layout.chunks(), all, node.rank());
  std::vector<std::int64_t> digests(layout.chunks());
  CopyWithDigest copy(content, layout);
  std::byte* const data = file.data() + extent.data_begin;
  for (std::uint64_t chunk = mine.first; chunk < mine.last; ++chunk) {
    digests[chunk] = copy.run(chunk, data + layout.begin_of(chunk));
  }
  const std::string text = sealed_header(node, content, digests);
  if (is_first) std::memcpy(file.data(), text.data(), text.size());
  return {extent.file_bytes, text.substr(kSealPosition, kUnsealed.size())};
}

}  // namespace tutti::checkpoint
