// SPDX-License-Identifier: Apache-2.0
// Files, whose errors name the path, the system's reason and the remedy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/unique_handle.hpp"

namespace tutti::checkpoint {

namespace fs = std::filesystem;

/// What every disk can write: direct transfers begin and end at multiples of it.
inline constexpr std::size_t kBlockBytes = 4096;

/// Errors of all members: io. Interrupted and partial transfers are continued.
class File {
 public:
  static File open(const fs::path& path);  ///< for reading
  /// For writing; it must not exist, or must. Neither its name nor that of its folder may be a
  /// link, which another user could have put there meanwhile: a caller follows those of its path.
  static File open_new(const fs::path& path);
  static File open_to_write(const fs::path& path);
  /// A file that is open already; the path is for messages.
  static File adopt(const fs::path& path, FileDescriptor handle) {
    return {path, std::move(handle)};
  }
  /// An open folder, for sync() and lock().
  static File open_folder(const fs::path& path);

  [[nodiscard]] std::uint64_t size() const;
  /// Errors: corrupt_file if the file ends before.
  void read(std::span<std::byte> bytes, std::uint64_t position) const;
  void write(std::span<const std::byte> bytes, std::uint64_t position);
  void write(const std::string& text, std::uint64_t position) {
    write(std::as_bytes(std::span(text)), position);
  }

  /// write() for much data that this process will not read again. On a local disk it goes there
  /// past the system's memory, if it begins at multiples of kBlockBytes in memory and in the file;
  /// elsewhere the system is asked to begin at once with what it keeps.
  void write_out(std::span<const std::byte> bytes, std::uint64_t position);

  /// Asks for the space before anything is written, where the file system can tell.
  void reserve(std::uint64_t bytes);
  /// Cuts the file off behind so many bytes.
  void resize(std::uint64_t bytes);
  /// Returns when all that was written will survive a loss of power.
  void sync();
  /// False if another process holds the lock of this file. It goes with the file's last handle,
  /// so also with a process that is killed. True where the file system knows no locks.
  [[nodiscard]] bool lock();

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  File(const fs::path& path, FileDescriptor handle) : path_(path), handle_(std::move(handle)) {}
  File(const fs::path& path, int flags, std::string_view purpose);
  static File open_own(const fs::path& path, int flags, std::string_view purpose);
  [[noreturn]] void fail(std::string_view verb) const;
  bool set_direct(bool direct) noexcept;

  fs::path path_;
  FileDescriptor handle_;
  bool is_direct_ = false;  ///< writes bypass the page cache
};

/// The whole of a file that is known to be small. Errors: io; corrupt_file if it is longer.
std::string read_text(const fs::path& path, std::uint64_t most_bytes);

/// The entries of a folder are durable when this returns, where the file system can do that for
/// folders: vboxsf, old CIFS and some of FUSE cannot. Errors: io.
void sync_folder(const fs::path& folder);

/// Makes the folder, unless there is one. Errors: io.
void make_folder(const fs::path& folder);
/// Makes the folder; there may be nothing of this name, not even a link to a folder. Errors: io.
void make_new_folder(const fs::path& folder);
/// Replaces `to`, in one step as seen by others and after a crash. Errors: io.
void move_to(const fs::path& from, const fs::path& to);

/// "cannot write /a/b: No space left on device; free some space, or save elsewhere". The code is
/// io, or corrupt_file if the disk cannot read its own data back.
[[noreturn]] void throw_io(std::string_view verb, const fs::path& path, int error);

}  // namespace tutti::checkpoint
