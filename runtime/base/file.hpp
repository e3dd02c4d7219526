// SPDX-License-Identifier: Apache-2.0
// File: files whose errors name the path, the system's reason and the remedy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/unique_handle.hpp"

namespace tutti::checkpoint {

namespace fs = std::filesystem;

/// A block size that every disk can write: direct transfers begin and end at multiples of it.
inline constexpr std::size_t kBlockBytes = 4096;

/// Errors of all members: io. Interrupted and partial transfers are continued.
class File {
 public:
  static File open(const fs::path& path);  ///< for reading
  /// Open for writing a file that must not exist (open_new), or must exist (open_to_write). Neither
  /// its name nor that of its folder may be a link, which another user could have put there
  /// meanwhile: a caller resolves the links of its path first.
  static File open_new(const fs::path& path);
  static File open_to_write(const fs::path& path);
  /// Adopts a file that is already open; the path is for messages.
  static File adopt(const fs::path& path, FileDescriptor handle) {
    return {path, std::move(handle)};
  }
  /// Opens a folder, for sync() and lock().
  static File open_folder(const fs::path& path);

  [[nodiscard]] std::uint64_t size() const;
  /// Errors: corrupt_file if the file ends before that.
  void read(std::span<std::byte> bytes, std::uint64_t position) const;
  void write(std::span<const std::byte> bytes, std::uint64_t position);
  void write(const std::string& text, std::uint64_t position) {
    write(std::as_bytes(std::span(text)), position);
  }

  /// Writes large data that this process will not read again. On a local disk it bypasses the page
  /// cache, if the data begins at multiples of kBlockBytes in memory and in the file; otherwise the
  /// system is asked to begin writing it to disk at once.
  void write_out(std::span<const std::byte> bytes, std::uint64_t position);

  /// Reserves the space for a file, so that a lack of it is noticed before anything is written,
  /// where the file system supports that.
  void reserve(std::uint64_t bytes);
  /// Cuts the file off after `bytes` bytes.
  void resize(std::uint64_t bytes);
  /// Returns when everything that was written will survive a loss of power.
  void sync();
  /// Returns false if another process holds the lock of this file. The lock ends with the last
  /// handle, so also when a process is killed. True if the file system does not support locks.
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

/// Returns the contents of a small file. Errors: io; corrupt_file if it is longer than
/// `most_bytes`.
std::string read_text(const fs::path& path, std::uint64_t most_bytes);

/// Makes the entries of a folder durable, if the file system supports that for folders, which
/// vboxsf, old CIFS and some FUSE file systems do not. Errors: io.
void sync_folder(const fs::path& folder);

/// Makes the folder if it does not exist. Errors: io.
void make_folder(const fs::path& folder);
/// Makes the folder. Nothing of this name may exist, not even a link to a folder. Errors: io.
void make_new_folder(const fs::path& folder);
/// Replaces `to` atomically, for other processes and also after a crash. Errors: io.
void move_to(const fs::path& from, const fs::path& to);

/// Throws an error such as "cannot write /a/b: No space left on device; free some space, or save
/// elsewhere". The code is io, or corrupt_file if the disk cannot read its own data.
[[noreturn]] void throw_io(std::string_view verb, const fs::path& path, int error);

}  // namespace tutti::checkpoint
