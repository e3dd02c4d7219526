// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_speed.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <tutti/error.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"
#include "support/progress.hpp"

namespace po = boost::program_options;

namespace apps::checkpoint {

namespace {

po::options_description describe(Options& options, std::string& bytes) {
  po::options_description all("Options", 100);
  add_rows(all, {
                    {"bytes", po::value(&bytes)->default_value("1G"),
                     "of weights (float32); with suffix as in 64M, 1GiB"},
                    {"keys", po::value(&options.keys)->default_value(16),
                     "equal parts that they are kept in"},
                    {"repeats", po::value(&options.repeats)->default_value(5),
                     "timed turns, after two that fill the directory"},
                    {"directory", po::value(&options.directory)->default_value("."),
                     "on the disk to measure; room for four times the bytes is needed"},
                });
  add_common_options(all);
  return all;
}

std::size_t bytes_of(const std::string& text) {
  try {
    return tutti::parse_bytes(text);
  } catch (const tutti::Error& error) {
    throw_usage_error(std::string("--bytes: ") + error.what());
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  std::string bytes;
  const auto values = parse_command_line(argc, argv, describe(options, bytes));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (options.help || options.version) return options;
  options.bytes = bytes_of(bytes);
  if (options.keys < 1) throw_usage_error("--keys: expected at least 1");
  if (options.repeats < 1) throw_usage_error("--repeats: expected at least 1");
  if (options.bytes < sizeof(float) * static_cast<std::size_t>(options.keys)) {
    throw_usage_error("--bytes " + bytes +
                      ": expected at least one float32 (4 bytes) for each of " +
                      std::to_string(options.keys) + " keys");
  }
  return options;
}

std::string help() {
  Options options;
  std::string bytes;
  std::ostringstream text;
  text
      << "checkpoint-benchmark: how fast a store is saved and loaded, beside the disk's own rate.\n"
         "Start it alone or with mpirun. In turn, and in a folder that is removed at the end:\n"
         "  disk  one process writes a file of that size, past the page cache if it can, and "
         "syncs\n"
         "  save  kv.save(), which keeps two checkpoints and removes older ones\n"
         "  async kv.save_async() until its files are on the disk; stop is the call itself\n"
         "  load  kv.load() of what was just saved, whose every element is checked\n\n"
      << describe(options, bytes) << "\nEnvironment:\n"
      << tutti::Settings::help();
  return text.str();
}

namespace {

/// The value of an element: it differs among 2^24 neighbours, is exact in float32, and never zero.
float element(std::size_t key, std::size_t index) {
  constexpr std::size_t kValues = (std::size_t{1} << 24) - 1;
  return static_cast<float>((index + 7919 * key) % kValues + 1);
}

}  // namespace

Weights::Weights(tutti::KVStore& kv, const Options& options)
    : count_(options.bytes / sizeof(float) / static_cast<std::size_t>(options.keys)) {
  tutti::Tensor values = tutti::Tensor::zeros({static_cast<std::int64_t>(count_)});
  for (std::size_t key = 0; key < static_cast<std::size_t>(options.keys); ++key) {
    for (std::size_t i = 0; i < count_; ++i) values.values<float>()[i] = element(key, i);
    keys_.emplace_back(static_cast<std::int64_t>(key));
    kv.init(keys_.back(), values);
  }
}

void Weights::forget(tutti::KVStore& kv) const {
  const tutti::Tensor zeros = tutti::Tensor::zeros({static_cast<std::int64_t>(count_)});
  kv.push(keys_, std::vector<tutti::ConstTensorView>(keys_.size(), zeros));
}

std::int64_t Weights::wrong(const tutti::KVStore& kv) const {
  std::int64_t count = 0;
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    const tutti::ConstTensorView stored = kv.view(keys_[key]);
    for (std::size_t i = 0; i < count_; ++i) {
      count += stored.values<float>()[i] == element(key, i) ? 0 : 1;
    }
  }
  return count;
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartBytes = std::size_t{4} << 20;
constexpr std::size_t kBlockBytes = 4096;

/// A file that is removed with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& path) : path_(path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    handle_ = ::open(path.c_str(), kFlags | O_DIRECT, 0600);
    if (handle_ < 0 && errno == EINVAL) {  // the file system has no direct writes
      static_cast<void>(::unlink(path.c_str()));
      handle_ = ::open(path.c_str(), kFlags, 0600);
    }
    if (handle_ < 0) fail("make");
  }
  ~TemporaryFile() {
    ::close(handle_);
    static_cast<void>(::unlink(path_.c_str()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void reserve(std::size_t bytes) {
    const int status = ::fallocate(handle_, 0, 0, static_cast<off_t>(bytes));
    if (status != 0 && errno != EOPNOTSUPP) fail("write");
  }

  void append(const std::byte* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t now = ::write(handle_, data + done, bytes - done);
      if (now < 0 && errno != EINTR) fail("write");
      if (now > 0) done += static_cast<std::size_t>(now);
    }
  }

  void sync() {
    if (::fsync(handle_) != 0) fail("write");
  }

 private:
  [[noreturn]] void fail(const char* verb) const {
    throw tutti::Error(tutti::ErrorCode::io, std::string("cannot ") + verb + " " + path_.string() +
                                                 ": " + std::generic_category().message(errno));
  }

  fs::path path_;
  int handle_ = -1;
};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

double seconds_to_write(const fs::path& path, std::size_t bytes) {
  const std::unique_ptr<std::byte, Free> part(
      static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kPartBytes)));
  if (part == nullptr) {
    throw tutti::Error(tutti::ErrorCode::out_of_memory, "no memory for 4 MiB to write from");
  }
  std::memset(part.get(), 42, kPartBytes);
  // Direct writes take whole blocks.
  const std::size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  const std::size_t whole = blocks * kBlockBytes;

  const Stopwatch time;
  TemporaryFile file(path);
  file.reserve(whole);
  for (std::size_t done = 0; done < whole; done += kPartBytes) {
    file.append(part.get(), std::min(kPartBytes, whole - done));
  }
  file.sync();
  return time.seconds();
}

}  // namespace apps::checkpoint
