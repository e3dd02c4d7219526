// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_limits.hpp"

#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <sys/statvfs.h>
#include <unistd.h>

namespace tutti {

namespace {

std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // no such file, or "max"
}

std::optional<std::size_t> mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::size_t kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemAvailable:") return kilobytes << 10;
  }
  return std::nullopt;
}

/// The limits of this process's cgroup (version 2) and of all above it.
std::optional<std::size_t> cgroup_available() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::optional<std::size_t> least;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string group = line.substr(3);
    while (true) {
      const std::string folder = "/sys/fs/cgroup" + group;
      const auto limit = number_in(folder + "/memory.max");
      const auto used = number_in(folder + "/memory.current");
      if (limit && used) {
        const std::size_t left = *limit > *used ? *limit - *used : 0;
        if (!least || left < *least) least = left;
      }
      const auto slash = group.find_last_of('/');
      if (slash == std::string::npos || group == "/") break;
      group.resize(slash);
    }
  }
  return least;
}

}  // namespace

AvailableMemory available_memory(const char* path) {
  AvailableMemory least{std::numeric_limits<std::size_t>::max(), "nothing"};
  const auto consider = [&](std::optional<std::size_t> bytes, const std::string& source) {
    if (bytes && *bytes < least.bytes) least = {*bytes, source};
  };
  consider(mem_available(), "MemAvailable of /proc/meminfo");
  consider(cgroup_available(), "the cgroup's memory.max");
  if (path != nullptr) {
    struct statvfs info {};
    if (statvfs(path, &info) == 0) {
      consider(std::size_t{info.f_bavail} * info.f_frsize, path);
    }
  }
  return least;
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace tutti
