// SPDX-License-Identifier: Apache-2.0
// Files that a user has named for output: reports, traces, metrics. One way to write them all.
//
//   a link                 what it leads to is written; a link that another user has put into a
//                          folder that others may write to is refused
//   a regular file         is replaced in one step, so that a reader never sees half of it; where
//   it
//                          cannot be (another owner, hard links, a mount of its own, a folder that
//                          may not be written to), it is written anew in place
//   a device, a pipe, an   is written to, and stays what it is
//   open file of /proc
#pragma once

#include <string>

#include "runtime/base/unique_handle.hpp"

namespace tutti {

/// An open output. Errors of all members: io, with the name, the system's reason and the remedy.
class Output {
 public:
  /// Opens what the name stands for; makes a regular file where there is nothing. `flags`: O_WRONLY
  /// or O_RDWR.
  static Output open(const std::string& path, int flags);

  /// False for what has no content that could be replaced: a device, a pipe, an open file of /proc.
  [[nodiscard]] bool is_regular() const noexcept { return is_regular_; }
  [[nodiscard]] FileDescriptor take() noexcept { return std::move(handle_); }

  /// Writes at the end of what is open. A pipe that nobody reads is not waited for without end.
  void write(const std::string& text);

 private:
  Output(std::string path, FileDescriptor handle, bool is_regular)
      : path_(std::move(path)), handle_(std::move(handle)), is_regular_(is_regular) {}

  std::string path_;
  FileDescriptor handle_;
  bool is_regular_;
};

/// Writes the whole text in place of what the output has. Errors: io.
void write_output(const std::string& path, const std::string& text);

/// Errors  io: write_output() could not write this output, which is not changed.
void require_output(const std::string& path);

/// True for the name of what is there and is no regular file: it has no names beside it.
bool is_stream(const std::string& path) noexcept;

/// The name that stays the same when the process changes its folder; an empty one stays empty.
std::string absolute_name(const std::string& path);

}  // namespace tutti
