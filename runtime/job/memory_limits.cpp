// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/memory_limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
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

/// Where a version of cgroups has its numbers.
struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* of_all_below;  ///< prefix in memory.stat of sums over subgroups
};
constexpr CgroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"};
constexpr CgroupFiles kVersion2{"/memory.max", "/memory.current", ""};

/// The page cache counts as used, but the kernel gives it back when memory is needed.
std::size_t kept_of_files(const std::string& folder, const std::string& prefix) {
  std::ifstream file(folder + "/memory.stat");
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (std::string name; file >> name >> bytes;) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") kept += bytes;
  }
  return kept;
}

/// The least that `group` of `folder`, and the groups above it, leave.
std::optional<std::size_t> left_in(const std::string& folder, std::string group,
                                   const CgroupFiles& files) {
  std::optional<std::size_t> least;
  while (true) {
    if (group == "/") group.clear();
    const std::string here = folder + group;
    const auto limit = number_in(here + files.limit);
    const auto used = number_in(here + files.used);
    if (limit && used) {
      const std::size_t taken = *used - std::min(*used, kept_of_files(here, files.of_all_below));
      const std::size_t left = *limit - std::min(*limit, taken);
      least = std::min(left, least.value_or(left));
    }
    if (group.empty()) return least;
    group.resize(group.find_last_of('/'));
  }
}

}  // namespace

std::optional<std::size_t> cgroup_available(const std::string& groups, const std::string& mounted) {
  std::ifstream file(groups);
  std::optional<std::size_t> least;
  for (std::string line; std::getline(file, line);) {  // number:controllers:group
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    std::optional<std::size_t> left;
    if (controllers.empty()) left = left_in(mounted, group, kVersion2);
    if (controllers == "memory") left = left_in(mounted + "/memory", group, kVersion1);
    if (left) least = std::min(*left, least.value_or(*left));
  }
  return least;
}

AvailableMemory available_memory(const char* path) {
  AvailableMemory least{std::numeric_limits<std::size_t>::max(), "nothing"};
  const auto consider = [&](std::optional<std::size_t> bytes, const std::string& source) {
    if (bytes && *bytes < least.bytes) least = {*bytes, source};
  };
  consider(mem_available(), "MemAvailable of /proc/meminfo");
  consider(cgroup_available("/proc/self/cgroup", "/sys/fs/cgroup"), "the cgroup's limit of memory");
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
