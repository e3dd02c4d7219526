// SPDX-License-Identifier: Apache-2.0
#include "support/terminal.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace apps {
namespace {

constexpr int kDefaultColumns = 80;

// What a process's standard output is: "/dev/pts/3", "/home/me/log.txt", "pipe:[4711]"; "" if it
// cannot be told.
std::string stdout_of(pid_t process) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/fd/1", error);
}

// 0 if it cannot be told.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

// Shells and tools between the launcher and this program have the same output as this program; the
// first ancestor that has another one is the launcher.
bool launcher_is_watched() {
  const std::string own = stdout_of(getpid());
  for (pid_t ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    const std::string output = stdout_of(ancestor);
    if (output == own) continue;
    return output.starts_with("/dev/pts/") || output.starts_with("/dev/tty");
  }
  return false;
}

}  // namespace

bool stdout_is_watched() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  const char* const terminal = std::getenv("TERM");
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return std::getenv("OMPI_COMM_WORLD_RANK") == nullptr || launcher_is_watched();
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

}  // namespace apps
