// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/output.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/magic.h>
#include <optional>
#include <poll.h>
#include <random>
#include <string_view>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "tutti/error.hpp"

#include "runtime/base/write_signals.hpp"

namespace tutti {

namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 16;
constexpr int kPatienceMs = 10'000;  // patience for the reader of a pipe
constexpr mode_t kNewFile = 0666;    // minus the umask
constexpr mode_t kPermissions = 0777;

[[noreturn]] void throw_not_written(const std::string& path, int error) {
  const char* remedy = "; name a file in a folder that this rank may write to";
  if (error == EFBIG) remedy = "; raise the limit of file sizes (ulimit -f unlimited)";
  if (error == ENOSPC || error == EDQUOT) remedy = "; free some space, or name another file";
  if (error == ENXIO || error == EPIPE) remedy = "; no process reads it";
  if (error == ETIMEDOUT) remedy = "; the process at its other end does not read it";
  throw Error(ErrorCode::io, path + ": cannot be written: " + std::strerror(error) + remedy);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

template <class Call>
int uninterrupted(Call call) {
  int result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Throws for links of other users in folders that others may write to: such a link could lead to
/// any file of this user.
void require_own_link(const fs::path& path, const struct stat& link) {
  if (link.st_uid == geteuid() || link.st_uid == 0) return;
  struct stat folder {};
  const bool is_shared =
      stat(folder_of(path).c_str(), &folder) != 0 || (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (!is_shared) return;
  throw Error(ErrorCode::io, path.string() + ": cannot be written: it is a link of another user (" +
                                 std::to_string(link.st_uid) +
                                 ") in a folder that others may write to; name the file that it "
                                 "leads to");
}

/// The file that a name refers to.
struct Target {
  fs::path path;         ///< not a link, except those of the kernel in /proc
  bool is_proc = false;  ///< an open file of a process, by its name in /proc
};

/// Follows links one by one, and checks each of them first.
Target target_of(const std::string& name) {
  Target target{name};
  for (int links = 0; links < kMostLinks; ++links) {
    const FileDescriptor at(::open(target.path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat found {};
    if (at.get() < 0 || fstat(at.get(), &found) != 0 || !S_ISLNK(found.st_mode)) return target;
    struct statfs system {};
    target.is_proc = fstatfs(at.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
    if (target.is_proc) return target;
    require_own_link(target.path, found);
    std::array<char, PATH_MAX> link{};
    const ssize_t length = readlinkat(at.get(), "", link.data(), link.size());
    if (length <= 0) throw_not_written(name, length < 0 ? errno : ENOENT);
    const std::string_view text(link.data(), static_cast<std::size_t>(length));
    target.path = folder_of(target.path) / text;  // an absolute `text` replaces the folder
  }
  throw_not_written(name, ELOOP);
}

/// Opens the target without waiting for pipes and terminals. Returns -1 with errno on failure.
FileDescriptor open_at(const Target& target, int flags) {
  flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (target.is_proc ? O_APPEND : O_NOFOLLOW);
  return FileDescriptor(
      uninterrupted([&] { return ::open(target.path.c_str(), flags, kNewFile); }));
}

/// Writes the whole text. Returns 0, or an errno.
int write_all(int handle, std::string_view text) {
  const WriteSignalsBlocked no_signals;
  while (!text.empty()) {
    const ssize_t done = ::write(handle, text.data(), text.size());
    if (done >= 0) {
      text.remove_prefix(static_cast<std::size_t>(done));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    pollfd reader{.fd = handle, .events = POLLOUT, .revents = 0};
    const int ready = uninterrupted([&] { return poll(&reader, 1, kPatienceMs); });
    if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  }
  return 0;
}

/// A new file in the output's folder, which is renamed to the output's name once it is complete.
class Replacement {
 public:
  explicit Replacement(const fs::path& path, mode_t mode)
      : name_(path.filename()),
        folder_(::open(folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_.get() < 0) {
      error_ = errno;
      return;
    }
    std::random_device random;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), ".tutti-%08x%08x", random(), random());
    temporary_ = text.data();
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    handle_ = FileDescriptor(
        uninterrupted([&] { return openat(folder_.get(), temporary_.c_str(), kFlags, mode); }));
    error_ = handle_.get() < 0 ? errno : 0;
  }
  ~Replacement() {
    if (error_ == 0 && !is_done_) unlinkat(folder_.get(), temporary_.c_str(), 0);
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  [[nodiscard]] int error() const { return error_; }  ///< 0, or the errno of its creation
  [[nodiscard]] int handle() const { return handle_.get(); }
  /// Closes the new file. Returns 0, or an errno: some file systems report only now that there is
  /// no space.
  int close() {
    const int status = ::close(handle_.release());
    return status == 0 || errno == EINTR ? 0 : errno;
  }
  /// Renames the file to the output's name. Returns 0, or an errno.
  int take_name() {
    if (renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) {
      return errno;
    }
    is_done_ = true;
    return 0;
  }

 private:
  std::string name_;
  std::string temporary_;
  FileDescriptor folder_;
  FileDescriptor handle_;
  int error_ = 0;
  bool is_done_ = false;
};

/// True if the file can be replaced by a new one: not if it has other names or belongs to another
/// user.
bool is_replaceable(const struct stat& found) {
  return found.st_uid == geteuid() && found.st_nlink == 1;
}

/// Replaces the target by a new file. Returns false if it has to be written in place instead.
bool replace(const Target& target, mode_t mode, bool is_there, const std::string& text) {
  Replacement file(target.path, mode);
  if (file.error() != 0 && is_there) return false;
  if (file.error() != 0) throw_not_written(target.path, file.error());
  if (is_there) fchmod(file.handle(), mode);
  int error = write_all(file.handle(), text);
  if (error == 0) error = file.close();
  if (error != 0) throw_not_written(target.path, error);
  const int refused = file.take_name();
  if (refused != 0 && !is_there) throw_not_written(target.path, refused);
  return refused == 0;
}

}  // namespace

Output Output::open(const std::string& path, int flags) {
  const Target target = target_of(path);
  FileDescriptor handle = open_at(target, flags | O_CREAT);
  struct stat found {};
  if (handle.get() < 0 || fstat(handle.get(), &found) != 0) throw_not_written(path, errno);
  return {path, std::move(handle), S_ISREG(found.st_mode) && !target.is_proc};
}

void Output::write(const std::string& text) {
  const int error = write_all(handle_.get(), text);
  if (error != 0) throw_not_written(path_, error);
}

void write_output(const std::string& path, const std::string& text) {
  const Target target = target_of(path);
  const FileDescriptor handle = open_at(target, O_WRONLY);
  struct stat found {};
  if (handle.get() < 0 && errno != ENOENT) throw_not_written(path, errno);
  if (handle.get() < 0) {
    replace(target, kNewFile, /*is_there=*/false, text);
    return;
  }
  if (fstat(handle.get(), &found) != 0) throw_not_written(path, errno);
  if (S_ISREG(found.st_mode) && !target.is_proc) {
    const mode_t mode = found.st_mode & kPermissions;
    if (is_replaceable(found) && replace(target, mode, /*is_there=*/true, text)) return;
    if (ftruncate(handle.get(), 0) != 0) throw_not_written(path, errno);
  }
  const int error = write_all(handle.get(), text);
  if (error != 0) throw_not_written(path, error);
}

void require_output(const std::string& path) {
  const Target target = target_of(path);
  const FileDescriptor handle = open_at(target, O_WRONLY);
  if (handle.get() >= 0) return;
  if (errno != ENOENT) throw_not_written(path, errno);
  const Replacement trial(target.path, kNewFile);
  if (trial.error() != 0) throw_not_written(path, trial.error());
}

bool is_stream(const std::string& path) noexcept {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

std::string absolute_name(const std::string& path) {
  if (path.empty()) return path;
  std::error_code unknown;
  const fs::path absolute = fs::absolute(path, unknown);
  return unknown ? path : absolute.string();
}

}  // namespace tutti
