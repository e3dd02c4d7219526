// SPDX-License-Identifier: Apache-2.0
#include "apps/checkpoint/disk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <system_error>
#include <unistd.h>

#include <tutti/error.hpp>

#include "support/progress.hpp"

namespace apps::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartBytes = std::size_t{4} << 20;
constexpr std::size_t kBlockBytes = 4096;

/// A file that goes with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& path) : path_(path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    handle_ = ::open(path.c_str(), kFlags | O_DIRECT, 0600);
    if (handle_ < 0 && errno == EINVAL) {  // no such thing here
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
  const std::size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;  // as direct writes want it
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
