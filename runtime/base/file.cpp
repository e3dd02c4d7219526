// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <system_error>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/base/write_signals.hpp"

namespace tutti::checkpoint {

namespace {

constexpr std::string_view kRead = "read";
constexpr mode_t kMode = 0666;                                   // minus the umask
constexpr std::size_t kMostBytesPerCall = std::size_t{1} << 30;  // Linux ends a call at 2 GiB

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space, or save elsewhere (a directory needs room for three checkpoints)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check owner and permissions of the folder, and that it is not mounted read-only";
    case ENOENT:
    case ENOTDIR:
      return "; check the path: the folder that it is in must exist on the host named here";
    case EFBIG:
      return "; raise the limit of file sizes (ulimit -f unlimited)";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    case EIO:
    case ESTALE:
      return "; the disk or its server fails: look into the system's log";
    default:
      return "";
  }
}

/// True for file systems on a local disk. Network and copy-on-write file systems are faster through
/// the page cache.
bool is_on_local_disk(int handle) {
  struct statfs status {};
  if (fstatfs(handle, &status) != 0) return false;
  return status.f_type == EXT4_SUPER_MAGIC || status.f_type == XFS_SUPER_MAGIC;
}

/// True for the errors with which file systems refuse a call that they do not support.
bool is_unsupported(int error) { return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS; }

template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

void throw_io(std::string_view verb, const fs::path& path, int error) {
  const bool is_lost = error == EIO && verb == kRead;
  throw Error(is_lost ? ErrorCode::corrupt_file : ErrorCode::io,
              "cannot " + std::string(verb) + " " + path.string() + ": " +
                  std::generic_category().message(error) + remedy(error));
}

File::File(const fs::path& path, int flags, std::string_view purpose) : path_(path) {
  handle_ =
      FileDescriptor(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kMode); }));
  if (handle_.get() < 0) throw_io(purpose, path, errno);
}

File File::open_own(const fs::path& path, int flags, std::string_view purpose) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  constexpr int kFolder = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const FileDescriptor parent(uninterrupted([&] { return ::open(folder.c_str(), kFolder); }));
  if (parent.get() < 0) throw_io(purpose, path, errno);
  FileDescriptor handle(uninterrupted([&] {
    return openat(parent.get(), path.filename().c_str(), flags | O_NOFOLLOW | O_CLOEXEC, kMode);
  }));
  if (handle.get() < 0) throw_io(purpose, path, errno);
  return {path, std::move(handle)};
}

File File::open(const fs::path& path) { return {path, O_RDONLY, "open"}; }
File File::open_new(const fs::path& path) {
  return open_own(path, O_WRONLY | O_CREAT | O_EXCL, "make");
}
File File::open_to_write(const fs::path& path) { return open_own(path, O_WRONLY, "open"); }
File File::open_folder(const fs::path& path) { return {path, O_RDONLY | O_DIRECTORY, "open"}; }

void File::fail(std::string_view verb) const { throw_io(verb, path_, errno); }

std::uint64_t File::size() const {
  struct stat status {};
  if (fstat(handle_.get(), &status) != 0) fail("look at");
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read(std::span<std::byte> bytes, std::uint64_t position) const {
  while (!bytes.empty()) {
    const std::size_t asked = std::min(bytes.size(), kMostBytesPerCall);
    const auto got = uninterrupted(
        [&] { return pread(handle_.get(), bytes.data(), asked, static_cast<off_t>(position)); });
    if (got < 0) fail(kRead);
    if (got == 0) {
      throw Error(ErrorCode::corrupt_file, path_.string() + " is truncated: it ends at byte " +
                                               std::to_string(position) + ", expected " +
                                               std::to_string(bytes.size()) + " more");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    position += static_cast<std::uint64_t>(got);
  }
}

void File::write(std::span<const std::byte> bytes, std::uint64_t position) {
  const WriteSignalsBlocked no_signals;
  while (!bytes.empty()) {
    const std::size_t asked = std::min(bytes.size(), kMostBytesPerCall);
    const auto done = uninterrupted(
        [&] { return pwrite(handle_.get(), bytes.data(), asked, static_cast<off_t>(position)); });
    if (done < 0) {
      // A direct write was refused, or the rest after a partial write begins within a block.
      if (errno == EINVAL && is_direct_ && set_direct(false)) continue;
      fail("write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    position += static_cast<std::uint64_t>(done);
  }
}

void File::write_out(std::span<const std::byte> bytes, std::uint64_t position) {
  const bool is_aligned = position % kBlockBytes == 0 &&
                          reinterpret_cast<std::uintptr_t>(bytes.data()) % kBlockBytes == 0;
  const std::size_t in_blocks = bytes.size() / kBlockBytes * kBlockBytes;
  if (is_aligned && in_blocks != 0 && is_on_local_disk(handle_.get()) && set_direct(true)) {
    write(bytes.first(in_blocks), position);
    set_direct(false);
    bytes = bytes.subspan(in_blocks);
    position += in_blocks;
  }
  if (bytes.empty()) return;
  write(bytes, position);
  sync_file_range(handle_.get(), static_cast<off_t>(position), static_cast<off_t>(bytes.size()),
                  SYNC_FILE_RANGE_WRITE);
}

bool File::set_direct(bool direct) noexcept {
  const int flags = fcntl(handle_.get(), F_GETFL);
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  if (flags < 0 || fcntl(handle_.get(), F_SETFL, wanted) != 0) return false;
  is_direct_ = direct;
  return true;
}

/// Checks the limit of file sizes first: if fallocate is not supported, it would be hit in the
/// middle of the file.
void File::reserve(std::uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    throw_io("write", path_, EFBIG);
  }
  if (bytes == 0) return;
  const int status =
      uninterrupted([&] { return fallocate(handle_.get(), 0, 0, static_cast<off_t>(bytes)); });
  if (status != 0 && !is_unsupported(errno)) fail("write");
}

void File::resize(std::uint64_t bytes) {
  if (uninterrupted([&] { return ftruncate(handle_.get(), static_cast<off_t>(bytes)); }) != 0) {
    fail("write");
  }
}

void File::sync() {
  if (uninterrupted([&] { return fsync(handle_.get()); }) != 0) fail("write");
}

bool File::lock() {
  return uninterrupted([&] { return flock(handle_.get(), LOCK_EX | LOCK_NB); }) == 0 ||
         errno != EWOULDBLOCK;
}

std::string read_text(const fs::path& path, std::uint64_t most_bytes) {
  const File file = File::open(path);
  const std::uint64_t bytes = file.size();
  if (bytes > most_bytes) {
    throw Error(ErrorCode::corrupt_file, path.string() + " has " + std::to_string(bytes) +
                                             " bytes, expected at most " +
                                             std::to_string(most_bytes));
  }
  std::string text(bytes, '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void sync_folder(const fs::path& folder) {
  const FileDescriptor handle(
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (handle.get() < 0) throw_io("open", folder, errno);
  const int status = uninterrupted([&] { return fsync(handle.get()); });
  if (status != 0 && !is_unsupported(errno)) throw_io("write", folder, errno);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) throw_io("make the folder", folder, error.value());
}

void make_new_folder(const fs::path& folder) {
  constexpr mode_t kFolderMode = 0777;  // minus the umask
  if (mkdir(folder.c_str(), kFolderMode) != 0) throw_io("make the folder", folder, errno);
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw_io("rename to", to, error.value());
}

}  // namespace tutti::checkpoint
