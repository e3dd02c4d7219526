// SPDX-License-Identifier: Apache-2.0
#include "support/fashion_mnist.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <zlib.h>

#include <tutti/error.hpp>

namespace apps {

namespace {

// Larger arrays are refused before any allocation: a damaged header would otherwise ask for
// terabytes.
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

  /// Reads bytes; returns their number, which is smaller than asked only at the end of the data.
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
    if (got < target.size()) throw_truncated(target.size(), what, got);
  }

  /// Reads data into memory that grows with it: a header may announce data that is not there.
  std::vector<std::uint8_t> read_data(std::size_t count) {
    constexpr std::size_t kFirst = std::size_t{1} << 20;
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < count) {
      const std::size_t before = bytes.size();
      bytes.resize(std::min(count, std::max(kFirst, 2 * before)));
      const std::size_t got = before + read(std::span(bytes).subspan(before));
      if (got < bytes.size()) throw_truncated(count, "data", got);
    }
    return bytes;
  }

  [[noreturn]] void throw_corrupt(const std::string& reason) const {
    throw tutti::Error(tutti::ErrorCode::corrupt_file, path_.string() + ": " + reason);
  }

 private:
  // A gzip stream that is cut off reads as a short file; only gzerror tells the difference.
  void require_clean_end() const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail_read();
  }

  [[noreturn]] void throw_truncated(std::size_t expected, const std::string& what,
                                    std::size_t found) const {
    throw_corrupt("ends early: expected " + std::to_string(expected) + " bytes of " + what +
                  ", found " + std::to_string(found));
  }

  [[noreturn]] void fail_read() const {
    int code = Z_OK;
    const std::string text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO) {
      throw tutti::Error(tutti::ErrorCode::io, path_.string() + ": " + std::strerror(errno));
    }
    if (code == Z_BUF_ERROR) throw_corrupt("the gzip data is cut off");
    throw_corrupt("the gzip data is damaged (" + text + ")");
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
  reader.throw_corrupt("is not an IDX file of bytes with " + std::to_string(rank) +
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
    if (count > kMaxBytes) reader.throw_corrupt("announces more than 2 GiB of data");
  }
  array.bytes = reader.read_data(count);
  std::array<std::uint8_t, 1> beyond{};
  if (reader.read(beyond) != 0) {
    reader.throw_corrupt("has more than the " + std::to_string(count) +
                         " bytes that its header announces");
  }
  return array;
}

namespace {

[[noreturn]] void throw_corrupt(const std::filesystem::path& path, const std::string& reason) {
  throw tutti::Error(tutti::ErrorCode::corrupt_file, path.string() + ": " + reason);
}

LabelledImages load_set(const std::filesystem::path& directory, const std::string& name,
                        std::size_t limit) {
  const auto images_path = directory / (name + "-images-idx3-ubyte.gz");
  const auto labels_path = directory / (name + "-labels-idx1-ubyte.gz");
  IdxArray images = read_idx(images_path, 3);
  IdxArray labels = read_idx(labels_path, 1);
  if (images.extents[1] != 28 || images.extents[2] != 28) {
    throw_corrupt(images_path, "expected images of 28 x 28 pixels, found " +
                                   std::to_string(images.extents[1]) + " x " +
                                   std::to_string(images.extents[2]));
  }
  if (images.extents[0] == 0 || images.extents[0] != labels.extents[0]) {
    throw_corrupt(labels_path, "has " + std::to_string(labels.extents[0]) + " labels for " +
                                   std::to_string(images.extents[0]) + " images");
  }
  if (std::ranges::max(labels.bytes) >= kImageClasses)
    throw_corrupt(labels_path, "has labels above 9");
  LabelledImages set{std::move(images.bytes), std::move(labels.bytes)};
  if (limit > 0 && limit < set.count()) {
    set.pixels.resize(limit * kImagePixels);
    set.labels.resize(limit);
  }
  return set;
}

}  // namespace

FashionMnist load_fashion_mnist(const std::filesystem::path& directory, std::size_t limit) {
  try {
    return {load_set(directory, "train", limit), load_set(directory, "t10k", limit)};
  } catch (const tutti::Error& error) {
    // To the program's user the data are an argument: --data names a folder with wrong data.
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       std::string(error.what()) +
                           " (--data names the folder of the four files; Debian and Ubuntu have "
                           "them: apt-get install dataset-fashion-mnist)");
  }
}

}  // namespace apps
