// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>
#include <zlib.h>

#include "tutti/error.hpp"

#include "apps/support/fashion_mnist.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() / ("idx_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

void write_gzip(const std::filesystem::path& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

Bytes header(const std::vector<std::uint32_t>& extents) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(extent >> shift));
    }
  }
  return bytes;
}

// Element i is i modulo 251, so that a shifted read is noticed.
Bytes file_of(const std::vector<std::uint32_t>& extents, std::size_t elements) {
  Bytes bytes = header(extents);
  for (std::size_t i = 0; i < elements; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 251));
  return bytes;
}

void check_refused(const std::filesystem::path& path, std::size_t rank, tutti::ErrorCode code,
                   const std::string& reason) {
  try {
    apps::read_idx(path, rank);
    FAIL("read without an error");
  } catch (const tutti::Error& error) {
    CHECK(error.code() == code);
    const std::string text = error.what();
    CHECK_MESSAGE(text.starts_with(path.string() + ": "), text);
    CHECK_MESSAGE(text.find(reason) != std::string::npos, text);
  }
}

std::string load_error(const std::filesystem::path& folder) {
  try {
    apps::load_fashion_mnist(folder);
    return "none";
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
    return error.what();
  }
}

// A set of `count` images, image i all of value i, label i modulo 10.
void write_set(const TemporaryFolder& folder, const std::string& name, std::uint32_t count) {
  Bytes images = header({count, 28, 28});
  Bytes labels = header({count});
  for (std::uint32_t i = 0; i < count; ++i) {
    images.insert(images.end(), 784, static_cast<std::uint8_t>(i));
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  write_gzip(folder.file(name + "-images-idx3-ubyte.gz"), images);
  write_gzip(folder.file(name + "-labels-idx1-ubyte.gz"), labels);
}

}  // namespace

TEST_CASE("read_idx gives extents and elements of a gzipped file") {
  const TemporaryFolder folder;
  const auto path = folder.file("good.gz");
  write_gzip(path, file_of({300, 4, 3}, 3600));
  const apps::IdxArray array = apps::read_idx(path, 3);
  CHECK(array.extents == std::vector<std::uint32_t>{300, 4, 3});
  REQUIRE(array.bytes.size() == 3600);
  CHECK(array.bytes[0] == 0);
  CHECK(array.bytes[3599] == 3599 % 251);
}

TEST_CASE("read_idx reads a file that is not compressed") {
  const TemporaryFolder folder;
  const Bytes bytes = file_of({5}, 5);
  std::ofstream(folder.file("plain"), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  CHECK(apps::read_idx(folder.file("plain"), 1).bytes == Bytes{0, 1, 2, 3, 4});
}

TEST_CASE("read_idx reads an array without elements") {
  const TemporaryFolder folder;
  write_gzip(folder.file("empty.gz"), file_of({0}, 0));
  CHECK(apps::read_idx(folder.file("empty.gz"), 1).bytes.empty());
}

TEST_CASE("read_idx names a missing file") {
  const TemporaryFolder folder;
  check_refused(folder.file("none.gz"), 1, tutti::ErrorCode::io, "No such file");
}

TEST_CASE("read_idx refuses a gzip file that is cut off") {
  const TemporaryFolder folder;
  const auto path = folder.file("cut.gz");
  write_gzip(path, file_of({100000}, 100000));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  check_refused(path, 1, tutti::ErrorCode::corrupt_file, "cut off");
}

TEST_CASE("read_idx refuses a gzip file whose checksum is cut off") {
  const TemporaryFolder folder;
  const auto path = folder.file("cut.gz");
  write_gzip(path, file_of({1000}, 1000));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  check_refused(path, 1, tutti::ErrorCode::corrupt_file, "cut off");
}

TEST_CASE("read_idx refuses a gzip file with a changed byte") {
  const TemporaryFolder folder;
  const auto path = folder.file("damaged.gz");
  write_gzip(path, file_of({1000}, 1000));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-6, std::ios::end);  // a byte of the checksum
  file.put('x');
  file.close();
  check_refused(path, 1, tutti::ErrorCode::corrupt_file, "damaged");
}

TEST_CASE("read_idx refuses another number at the start") {
  const TemporaryFolder folder;
  write_gzip(folder.file("text.gz"), {'t', 'e', 'x', 't', 0, 0, 0, 1, 7});
  check_refused(folder.file("text.gz"), 1, tutti::ErrorCode::corrupt_file, "not an IDX file");
  write_gzip(folder.file("labels.gz"), file_of({2}, 2));
  check_refused(folder.file("labels.gz"), 3, tutti::ErrorCode::corrupt_file,
                "expected the number 2051 at its start, found 2049");
}

TEST_CASE("read_idx refuses a header that ends early") {
  const TemporaryFolder folder;
  write_gzip(folder.file("short.gz"), {0, 0, 8, 1, 0, 0});
  check_refused(folder.file("short.gz"), 1, tutti::ErrorCode::corrupt_file, "of header");
}

TEST_CASE("read_idx refuses fewer elements than announced") {
  const TemporaryFolder folder;
  write_gzip(folder.file("few.gz"), file_of({4, 2}, 7));
  check_refused(folder.file("few.gz"), 2, tutti::ErrorCode::corrupt_file,
                "expected 8 bytes of data, found 7");
}

TEST_CASE("read_idx refuses bytes after the data") {
  const TemporaryFolder folder;
  write_gzip(folder.file("more.gz"), file_of({4, 2}, 9));
  check_refused(folder.file("more.gz"), 2, tutti::ErrorCode::corrupt_file, "more than the 8 bytes");
}

TEST_CASE("read_idx refuses a size that no data set has, without allocating it") {
  const TemporaryFolder folder;
  write_gzip(folder.file("huge.gz"), file_of({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 0));
  check_refused(folder.file("huge.gz"), 3, tutti::ErrorCode::corrupt_file, "2 GiB");
}

TEST_CASE("load_fashion_mnist reads the four files, and at most `limit` images of a set") {
  const TemporaryFolder folder;
  write_set(folder, "train", 12);
  write_set(folder, "t10k", 3);
  const apps::FashionMnist all = apps::load_fashion_mnist(folder.file(""));
  CHECK(all.train.count() == 12);
  CHECK(all.test.count() == 3);
  CHECK(all.train.pixels[std::size_t{11} * apps::kImagePixels] == 11);
  CHECK(all.train.labels[11] == 1);
  const apps::FashionMnist some = apps::load_fashion_mnist(folder.file(""), 5);
  CHECK(some.train.count() == 5);
  CHECK(some.train.pixels.size() == 5 * apps::kImagePixels);
  CHECK(some.test.count() == 3);
}

TEST_CASE("load_fashion_mnist names the missing file and the package that has it") {
  const TemporaryFolder folder;
  write_set(folder, "train", 1);
  const std::string text = load_error(folder.file(""));
  CHECK_MESSAGE(text.find("t10k-images-idx3-ubyte.gz") != std::string::npos, text);
  CHECK_MESSAGE(text.find("apt-get install dataset-fashion-mnist") != std::string::npos, text);
}

TEST_CASE("load_fashion_mnist refuses sets that are not what the network expects") {
  const TemporaryFolder folder;
  write_set(folder, "t10k", 2);
  write_set(folder, "train", 2);
  write_gzip(folder.file("train-labels-idx1-ubyte.gz"), file_of({3}, 3));
  CHECK(load_error(folder.file("")).find("3 labels for 2 images") != std::string::npos);
  write_gzip(folder.file("train-labels-idx1-ubyte.gz"), file_of({11}, 11));
  write_gzip(folder.file("train-images-idx3-ubyte.gz"), file_of({11, 28, 28}, 8624));
  CHECK(load_error(folder.file("")).find("labels above 9") != std::string::npos);
  write_gzip(folder.file("train-images-idx3-ubyte.gz"), file_of({11, 32, 28}, 9856));
  CHECK(load_error(folder.file("")).find("found 32 x 28") != std::string::npos);
  write_gzip(folder.file("train-images-idx3-ubyte.gz"), file_of({11, 28, 32}, 9856));
  CHECK(load_error(folder.file("")).find("found 28 x 32") != std::string::npos);
}
