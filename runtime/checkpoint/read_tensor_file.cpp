// SPDX-License-Identifier: Apache-2.0
//   rank 0      reads the header; all ranks get it, and check it
//   readers     the ranks that find the same header themselves: they see the same file
//   they        read their chunks into memory of their own, and compare the digests
//   deliver     every chunk goes from its reader to every rank
//
// A file in a node's memory, which its ranks map, is not read: they compare the digests of a share
// each where it is, and each rank copies all chunks from there.
#include <charconv>
#include <cstring>
#include <optional>
#include <xxhash.h>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/base/throw.hpp"
#include "runtime/checkpoint/data_layout.hpp"
#include "runtime/checkpoint/exchange.hpp"
#include "runtime/checkpoint/memory_files.hpp"
#include "runtime/checkpoint/seal.hpp"
#include "runtime/checkpoint/tensor_file.hpp"
#include "runtime/job/group.hpp"

namespace tutti::checkpoint {

namespace {

constexpr std::size_t kNamedTensors = 3;

/// Length and header of a file.
std::string read_head(const File& file) {
  std::string head(kLengthBytes, '\0');
  const std::uint64_t file_bytes = file.size();
  if (file_bytes >= kLengthBytes) file.read(std::as_writable_bytes(std::span(head)), 0);
  head.resize(kLengthBytes + header_length(head, file_bytes));
  file.read(std::as_writable_bytes(std::span(head)), 0);
  return head;
}

/// Looks for damage before it reads the content: a changed byte is damage, whatever it says now.
Header check_head(const std::string& head, std::uint64_t file_bytes) {
  const std::string_view json = std::string_view(head).substr(kLengthBytes);
  if (!json.starts_with(kSealBegin) || seal_of(head, kSealPosition).empty()) {
    throw_corrupt_file("the header is not what was written (checksum), or not this library's");
  }
  Header header = parse_header(json, file_bytes - head.size());
  std::uint64_t format = 0;
  const std::string& digits = header.text(kFormatName);
  std::from_chars(digits.data(), digits.data() + digits.size(), format);
  require_known_format(format);
  if (header.text(kChunkBytesName) != std::to_string(kChunkBytes) ||
      header.text(kDigestsName).size() != DataLayout(header.tensors).chunks() * kUnsealed.size()) {
    throw_corrupt_file("the header has checksums of other chunks than it should");
  }
  return header;
}

std::string names_in(const DataLayout& layout, const Header& header, std::uint64_t chunk) {
  std::string names;
  std::size_t count = 0;
  layout.for_each_part(layout.begin_of(chunk), layout.begin_of(chunk + 1),
                       [&](std::size_t tensor, std::uint64_t, std::uint64_t, std::uint64_t) {
                         if (++count > kNamedTensors) return;
                         names += (count == 1 ? "" : ", ") + header.tensors[tensor].name;
                       });
  return count > kNamedTensors ? names + ", ..." : names;
}

void check_chunk(std::span<const std::byte> bytes, const DataLayout& layout, const Header& header,
                 std::uint64_t chunk) {
  const std::string_view digests = header.text(kDigestsName);
  const std::string found = in_hex(XXH3_64bits(bytes.data(), bytes.size()));
  const std::string_view expected = digests.substr(chunk * kUnsealed.size(), kUnsealed.size());
  if (found == expected) return;
  throw_corrupt_file("bytes " + std::to_string(layout.begin_of(chunk)) + " to " +
                     std::to_string(layout.begin_of(chunk + 1)) +
                     " of the data are not what was written (" + names_in(layout, header, chunk) +
                     "): checksum " + found + ", expected " + std::string(expected));
}

/// Whether this rank's own file begins as rank 0's does. A rank that cannot tell leaves the reading
/// to the others.
std::optional<File> same_file(const fs::path& path, const std::string& head,
                              std::uint64_t file_bytes) {
  try {
    File file = File::open(path);
    if (file.size() == file_bytes && read_head(file) == head) return file;
  } catch (const std::exception&) {  // no memory for a header, for example
    return std::nullopt;
  }
  return std::nullopt;
}

/// How rank 0's file begins, and how large it is, on every rank. `file` is rank 0's own.
struct Head {
  std::string text;
  std::uint64_t file_bytes = 0;
  std::optional<File> file;
};

Head head_of_first(Communicator& ranks, const fs::path& path) {
  Head head;
  std::int64_t file_bytes = 0;
  head.text = text_of_first(ranks, [&] {
    std::string text;
    head.file = File::open(path);
    in_place(path.string(), [&] {
      text = read_head(*head.file);
      file_bytes = static_cast<std::int64_t>(head.file->size());
    });
    return text;
  });
  ranks.broadcast(view(&file_bytes, {1}), 0);
  head.file_bytes = static_cast<std::uint64_t>(file_bytes);
  return head;
}

Header check_together(Communicator& ranks, const fs::path& path, const Head& head) {
  Header header;
  ranks.agree(
      [&] { in_place(path.string(), [&] { header = check_head(head.text, head.file_bytes); }); });
  return header;
}

/// The bytes of a file that is mapped on all ranks; nothing if a rank cannot map it. Collective.
std::span<const std::byte> map_on_all(Communicator& ranks, MemoryFiles& memory,
                                      const fs::path& path, const Head& head) {
  std::span<const std::byte> mapped;
  try {
    if (head.file) mapped = memory.map(path, head.file_bytes);
  } catch (const Error&) {  // of the limit of address space, for example: then it is read
  }
  const bool has_failed_on_any = !ranks_where(ranks, mapped.empty()).empty();
  return has_failed_on_any ? std::span<const std::byte>() : mapped;
}

}  // namespace

Header TensorFile::read_header(Communicator& ranks, const fs::path& path) {
  return check_together(ranks, path, head_of_first(ranks, path));
}

TensorFile TensorFile::read(Communicator& ranks, const fs::path& path, MemoryFiles* memory) {
  TensorFile result;
  result.path_ = path;
  Head head = head_of_first(ranks, path);
  result.summary_.bytes = head.file_bytes;
  if (!head.file) head.file = same_file(path, head.text, head.file_bytes);
  result.readers_ = ranks_where(ranks, head.file.has_value());
  result.header_ = check_together(ranks, path, head);
  result.summary_.seal = head.text.substr(kSealPosition, kUnsealed.size());
  std::span<const std::byte> mapped;
  if (memory != nullptr) mapped = map_on_all(ranks, *memory, path, head);
  if (mapped.empty()) {
    result.read_share(ranks, head.file, head.text.size());
  } else {
    result.mapped_ = mapped.subspan(head.text.size());
    result.verify_share(ranks);
  }
  return result;
}

void TensorFile::verify_share(Communicator& ranks) const {
  const DataLayout layout(header_.tensors);
  const Chunks mine = share_of(layout.chunks(), readers_, ranks.rank());
  const std::uint64_t most = most_chunks(layout.chunks(), readers_);
  in_rounds(ranks, mine.count(), most, [&](std::uint64_t index) {
    const std::uint64_t chunk = mine.first + index;
    const std::uint64_t begin = layout.begin_of(chunk);
    const auto bytes = mapped_.subspan(begin, layout.begin_of(chunk + 1) - begin);
    in_place(path_.string(), [&] { check_chunk(bytes, layout, header_, chunk); });
  });
}

void TensorFile::read_share(Communicator& ranks, const std::optional<File>& file,
                            std::uint64_t data_begin) {
  const DataLayout layout(header_.tensors);
  const Chunks mine = share_of(layout.chunks(), readers_, ranks.rank());
  const std::uint64_t begin = layout.begin_of(mine.first);
  std::shared_ptr<Tensor> share;
  ranks.agree([&] {
    const auto bytes = static_cast<std::int64_t>(layout.begin_of(mine.last) - begin);
    share = std::make_shared<Tensor>(Tensor::empty({bytes}, DType::uint8));
  });
  const std::uint64_t most = most_chunks(layout.chunks(), readers_);
  in_rounds(ranks, mine.count(), most, [&](std::uint64_t index) {
    const std::uint64_t chunk = mine.first + index;
    const std::span bytes(share->bytes() + (layout.begin_of(chunk) - begin),
                          layout.begin_of(chunk + 1) - layout.begin_of(chunk));
    file->read(bytes, data_begin + layout.begin_of(chunk));
    in_place(path_.string(), [&] { check_chunk(bytes, layout, header_, chunk); });
  });
  share_ = std::move(share);
}

void TensorFile::deliver(Communicator& ranks, std::span<std::byte* const> destinations) const {
  const DataLayout layout(header_.tensors);
  if (!mapped_.empty()) {
    layout.for_each_part(
        0, layout.bytes(),
        [&](std::size_t tensor, std::uint64_t offset, std::uint64_t from, std::uint64_t to) {
          std::memcpy(destinations[tensor] + offset, &mapped_[from], to - from);
        });
    return;
  }
  Digest digest;
  digest.add(std::string_view(summary_.seal));
  std::vector<collectives::Segment> segments;
  for (const int reader : readers_) {
    const Chunks share = share_of(layout.chunks(), readers_, reader);
    const std::uint64_t begin = layout.begin_of(share.first);
    const bool is_mine = reader == ranks.rank();
    layout.for_each_part(
        begin, layout.begin_of(share.last),
        [&](std::size_t tensor, std::uint64_t offset, std::uint64_t from, std::uint64_t to) {
          segments.push_back({is_mine ? share_->bytes() + (from - begin) : nullptr,
                              destinations[tensor] + offset, to - from, DType::uint8, reader});
        });
  }
  const auto describe = [&] { return "load of " + path_.string(); };
  ranks.group()->engine().run({.kind = collectives::Kind::allgather,
                               .digest = digest.value(),
                               .segments = segments,
                               .describe = describe,
                               .verb = collectives::Verb::load});
}

}  // namespace tutti::checkpoint
