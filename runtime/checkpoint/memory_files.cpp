// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/memory_files.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/base/unique_handle.hpp"

namespace tutti::checkpoint {

namespace {

constexpr mode_t kOwnerAlone = 0600;

FileDescriptor open_own_file(const fs::path& path, int flags) {
  FileDescriptor file(open(path.c_str(), flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, kOwnerAlone));
  if (file.get() < 0) throw_io("open", path, errno);
  return file;
}

struct stat status_of(const FileDescriptor& file, const fs::path& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_io("look at", path, errno);
  return status;
}

}  // namespace

std::string in_kib_or_mib(std::uint64_t bytes) {
  constexpr std::uint64_t kFew = std::uint64_t{10} << 20;
  return bytes < kFew ? std::to_string(bytes >> 10) + " KiB" : std::to_string(bytes >> 20) + " MiB";
}

void make_memory_file(const fs::path& path, std::uint64_t bytes) {
  const FileDescriptor file = open_own_file(path, O_CREAT);
  const off_t before = status_of(file, path).st_size;
  const auto size = static_cast<off_t>(bytes);
  if (before > size && ftruncate(file.get(), size) != 0) throw_io("write", path, errno);
  if (before >= size) return;
  int status = 0;  // the file is longer once all pages are there, whenever the process is killed
  do {
    status = fallocate(file.get(), 0, 0, size);
  } while (status != 0 && errno == EINTR);
  if (status == 0) return;
  throw Error(ErrorCode::out_of_memory, "a snapshot's file " + path.string() + " of " +
                                            in_kib_or_mib(bytes) +
                                            " cannot be made: " + std::strerror(errno));
}

std::span<std::byte> MemoryFiles::map(const fs::path& path, std::uint64_t bytes) {
  const FileDescriptor file = open_own_file(path, 0);
  const struct stat status = status_of(file, path);
  if (!std::cmp_equal(status.st_size, bytes)) {
    throw Error(ErrorCode::io, path.string() + " has " + std::to_string(status.st_size) +
                                   " bytes, expected " + std::to_string(bytes));
  }
  Mapping& mapping = mappings_[status.st_ino];
  if (mapping.size() != bytes) {
    mapping = Mapping();
    mapping = Mapping(file.get(), bytes);
  }
  return {mapping.data(), bytes};
}

}  // namespace tutti::checkpoint
