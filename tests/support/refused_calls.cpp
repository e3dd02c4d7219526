// SPDX-License-Identifier: Apache-2.0
// These definitions replace calls of the C library. As a library of its own,
//
//     LD_PRELOAD=librefused_calls.so REFUSED_CALLS=memfd_create:13,fsync:22 PROGRAM
//
// refuses the calls with these errors in a program, and in the programs that it starts.
#include "support/refused_calls.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace test {

namespace {

constexpr unsigned kNoExecSeal = 8;

/// The number behind "NAME:" in REFUSED_CALLS; 0 if there is none.
int error_of(const char* name) {
  const char* list = std::getenv("REFUSED_CALLS");
  const char* found = list == nullptr ? nullptr : std::strstr(list, name);
  return found == nullptr ? 0 : std::atoi(found + std::strlen(name));
}

std::atomic<int>& memfd_error() {
  static std::atomic<int> error{error_of("memfd_create:")};
  return error;
}

std::atomic<int>& fsync_error() {
  static std::atomic<int> error{error_of("fsync:")};
  return error;
}

int refused(int error) {
  errno = error;
  return -1;
}

}  // namespace

void refuse_memfd(int error) { memfd_error() = error; }
void refuse_fsync_of_folders(int error) { fsync_error() = error; }

}  // namespace test

extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  const int error = test::memfd_error();
  const bool is_known = error == EINVAL && (flags & test::kNoExecSeal) == 0;
  if (error != 0 && !is_known) return test::refused(error);
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}

extern "C" int fsync(int file) {
  const int error = test::fsync_error();
  struct stat found {};
  if (error != 0 && fstat(file, &found) == 0 && S_ISDIR(found.st_mode)) return test::refused(error);
  return static_cast<int>(syscall(SYS_fsync, file));
}
