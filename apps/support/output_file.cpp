// SPDX-License-Identifier: Apache-2.0
#include "support/output_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <tutti/error.hpp>

#include "support/command_line.hpp"

namespace apps {

namespace {

/// 0, or what is wrong.
int write_in_place(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return 0;
  return errno != 0 ? errno : EIO;
}

/// A file of this user's alone, by this name alone. Another file of its name can take its place.
bool is_replaceable(const std::string& path, struct stat& found) {
  return lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1 &&
         found.st_uid == geteuid();
}

/// False if the file has to be written in place. `error` is 0, or what is wrong.
bool replace(const std::string& path, const std::string& text, int& error) {
  constexpr mode_t kPermissions = 0777;
  struct stat found {};
  if (!is_replaceable(path, found)) return false;
  std::string beside = path + ".XXXXXX";
  const int handle = mkstemp(beside.data());
  if (handle < 0) return false;
  fchmod(handle, found.st_mode & kPermissions);
  close(handle);
  error = write_in_place(beside, text);
  if (error == 0 && std::rename(beside.c_str(), path.c_str()) == 0) return true;
  unlink(beside.c_str());
  return error != 0;
}

}  // namespace

void write_file(const std::filesystem::path& path, const std::string& text) {
  if (path.empty()) return;
  int error = 0;
  if (!replace(path, text, error)) error = write_in_place(path, text);
  if (error == 0) return;
  throw tutti::Error(tutti::ErrorCode::io,
                     path.string() + ": cannot be written: " + std::strerror(error));
}

void check_output_file(const std::filesystem::path& path) {
  if (path.empty()) return;
  std::error_code unknown;
  const bool is_new = !std::filesystem::exists(std::filesystem::symlink_status(path, unknown));
  if (!std::ofstream(path, std::ios::app)) {
    throw_usage_error(path.string() + ": cannot be written: " + std::strerror(errno));
  }
  if (is_new) std::filesystem::remove(path, unknown);
}

}  // namespace apps
