// SPDX-License-Identifier: Apache-2.0
// Output: files that a user has named for output, such as reports, traces and metrics.
//
//   a link                 its target is written; a link that another user has put into a folder
//                          that others may write to is refused
//   a regular file         is replaced atomically, so that a reader never sees half of it; where
//                          that is impossible (another owner, hard links, a mount of its own, a
//                          folder that may not be written to), it is rewritten in place
//   a device, a pipe, an   is written to, and never replaced
//   open file of /proc
#pragma once

#include <string>

#include "runtime/base/unique_handle.hpp"

namespace tutti {

/// An open output. Errors of all members: io, with the name, the system's reason and the remedy.
class Output {
 public:
  /// Opens the output; creates a regular file if it does not exist. `flags`: O_WRONLY or O_RDWR.
  static Output open(const std::string& path, int flags);

  /// False if there is no content to be replaced: for a device, a pipe, or an open file of /proc.
  [[nodiscard]] bool is_regular() const noexcept { return is_regular_; }
  [[nodiscard]] FileDescriptor take() noexcept { return std::move(handle_); }

  /// Writes at the current position. The wait for the reader of a pipe is limited.
  void write(const std::string& text);

 private:
  Output(std::string path, FileDescriptor handle, bool is_regular)
      : path_(std::move(path)), handle_(std::move(handle)), is_regular_(is_regular) {}

  std::string path_;
  FileDescriptor handle_;
  bool is_regular_;
};

/// Replaces the content of the output by the text. Errors: io.
void write_output(const std::string& path, const std::string& text);

/// Checks that write_output() could write this output, without changing it. Errors: io.
void require_output(const std::string& path);

/// True if the name exists and is not a regular file, so that names derived from it make no sense.
bool is_stream(const std::string& path) noexcept;

/// Returns a name that stays valid when the process changes its working directory; an empty name
/// remains empty.
std::string absolute_name(const std::string& path);

}  // namespace tutti
