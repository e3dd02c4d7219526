// SPDX-License-Identifier: Apache-2.0
#include "support/idx.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <zlib.h>

#include <tutti/error.hpp>

namespace apps {
namespace {

// Refused before any allocation: a damaged header would otherwise ask for terabytes.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 31;

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose_r(file); }
};

class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) {
      throw tutti::Error(tutti::ErrorCode::io, path.string() + ": " + std::strerror(errno));
    }
    gzbuffer(file_.get(), 1U << 18);
  }

  /// Bytes read; fewer than asked only at the end of the data.
  std::size_t read(std::span<std::uint8_t> target) {
    std::size_t done = 0;
    while (done < target.size()) {
      const std::size_t piece = std::min(target.size() - done, std::size_t{1} << 28);
      const int got = gzread(file_.get(), target.data() + done, static_cast<unsigned>(piece));
      if (got < 0) fail_read();
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    if (done < target.size()) require_clean_end();
    return done;
  }

  void read_all(std::span<std::uint8_t> target, const std::string& what) {
    const std::size_t got = read(target);
    if (got < target.size()) throw_ends_early(target.size(), what, got);
  }

  /// Grows with the data: a header may announce what is not there.
  std::vector<std::uint8_t> read_data(std::size_t count) {
    constexpr std::size_t kFirst = std::size_t{1} << 20;
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < count) {
      const std::size_t before = bytes.size();
      bytes.resize(std::min(count, std::max(kFirst, 2 * before)));
      const std::size_t got = before + read(std::span(bytes).subspan(before));
      if (got < bytes.size()) throw_ends_early(count, "data", got);
    }
    return bytes;
  }

  [[noreturn]] void throw_corrupt_file(const std::string& reason) const {
    throw tutti::Error(tutti::ErrorCode::corrupt_file, path_.string() + ": " + reason);
  }

 private:
  // A gzip stream that is cut off reads as a short file; only gzerror tells the difference.
  void require_clean_end() const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail_read();
  }

  [[noreturn]] void throw_ends_early(std::size_t expected, const std::string& what,
                                     std::size_t found) const {
    throw_corrupt_file("ends early: expected " + std::to_string(expected) + " bytes of " + what +
                       ", found " + std::to_string(found));
  }

  [[noreturn]] void fail_read() const {
    int code = Z_OK;
    const std::string text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO) {
      throw tutti::Error(tutti::ErrorCode::io, path_.string() + ": " + std::strerror(errno));
    }
    if (code == Z_BUF_ERROR) throw_corrupt_file("the gzip data is cut off");
    throw_corrupt_file("the gzip data is damaged (" + text + ")");
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
};

std::uint32_t big_endian(std::span<const std::uint8_t, 4> bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

void read_magic(GzipReader& reader, std::size_t rank) {
  std::array<std::uint8_t, 4> magic{};
  reader.read_all(magic, "header");
  const std::uint32_t expected = 0x0800U + static_cast<std::uint32_t>(rank);
  const std::uint32_t found = big_endian(magic);
  if (found == expected) return;
  reader.throw_corrupt_file("is not an IDX file of bytes with " + std::to_string(rank) +
                            " dimensions: expected the number " + std::to_string(expected) +
                            " at its start, found " + std::to_string(found));
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, std::size_t rank) {
  GzipReader reader(path);
  read_magic(reader, rank);
  IdxArray array;
  std::uint64_t count = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> extent{};
    reader.read_all(extent, "header");
    array.extents.push_back(big_endian(extent));
    count *= array.extents.back();
    if (count > kMaxBytes) reader.throw_corrupt_file("announces more than 2 GiB of data");
  }
  array.bytes = reader.read_data(count);
  std::array<std::uint8_t, 1> beyond{};
  if (reader.read(beyond) != 0) {
    reader.throw_corrupt_file("has more than the " + std::to_string(count) +
                              " bytes that its header announces");
  }
  return array;
}

}  // namespace apps
