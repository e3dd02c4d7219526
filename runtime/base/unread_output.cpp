// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/unread_output.hpp"

#include <chrono>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace tutti {

namespace {

/// Returns the number of unread bytes in a pipe; 0 if the file is no pipe.
int unread(int file) {
  struct stat status {};
  int bytes = 0;
  const bool is_pipe = fstat(file, &status) == 0 && S_ISFIFO(status.st_mode);
  return is_pipe && ioctl(file, FIONREAD, &bytes) == 0 ? bytes : 0;
}

}  // namespace

void wait_for_reader() noexcept {
  constexpr auto kPatience = std::chrono::seconds(1);
  constexpr auto kInterval = std::chrono::milliseconds(1);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while ((unread(STDOUT_FILENO) > 0 || unread(STDERR_FILENO) > 0) &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace tutti
