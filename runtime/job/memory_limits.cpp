// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/memory_limits.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "collectives/text/numbers.hpp"
#include "runtime/base/system_file.hpp"
#include "runtime/job/cgroups.hpp"

namespace tutti {

namespace {

std::optional<std::size_t> number_in(const std::string& path) {
  // None for a missing file, or for "max".
  return number_of<std::size_t>(first_word(read_system_file(path)));
}

/// Returns the sum of the numbers in lines that begin with one of these names.
std::size_t sum_of(const std::string& text, std::initializer_list<std::string_view> names) {
  std::size_t sum = 0;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() < 2 || std::ranges::find(names, words[0]) == names.end()) continue;
    sum += number_of<std::size_t>(words[1]).value_or(0);
  }
  return sum;
}

std::optional<std::size_t> mem_available() {
  const std::size_t kilobytes = sum_of(read_system_file("/proc/meminfo"), {"MemAvailable:"});
  if (kilobytes == 0) return std::nullopt;
  return kilobytes << 10;
}

/// The names of memory files in a version of cgroups.
struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* of_all_below;  ///< prefix in memory.stat of sums over subgroups
};
constexpr CgroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"};
constexpr CgroupFiles kVersion2{"/memory.max", "/memory.current", ""};

/// Returns the size of the page cache, which counts as used, but which the kernel releases when
/// memory is needed.
std::size_t kept_of_files(const std::string& folder, const std::string& prefix) {
  return sum_of(read_system_file(folder + "/memory.stat"),
                {prefix + "inactive_file", prefix + "active_file"});
}

/// Returns the memory that a group leaves, if it limits memory.
std::optional<std::size_t> left_in(const std::string& folder, const CgroupFiles& files) {
  const auto limit = number_in(folder + files.limit);
  const auto used = number_in(folder + files.used);
  if (!limit || !used) return std::nullopt;
  const std::size_t taken = *used - std::min(*used, kept_of_files(folder, files.of_all_below));
  return *limit - std::min(*limit, taken);
}

}  // namespace

std::optional<std::size_t> cgroup_available(const std::string& groups, const std::string& mounted) {
  std::optional<std::size_t> least;
  for (const Cgroup& group : cgroups_of("memory", groups, mounted)) {
    const auto left = left_in(group.folder, group.version == 2 ? kVersion2 : kVersion1);
    if (left) least = std::min(*left, least.value_or(*left));
  }
  return least;
}

std::string limits_of_memory() {
  struct Limit {
    __rlimit_resource resource;
    const char* name;
  };
  constexpr std::array kLimits = {Limit{RLIMIT_AS, "-v"}, Limit{RLIMIT_DATA, "-d"},
                                  Limit{RLIMIT_MEMLOCK, "-l"}};
  std::string text;
  for (const auto& [resource, name] : kLimits) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    text += std::string(text.empty() ? "; set here: " : ", ") + "ulimit " + name + " " +
            std::to_string(limit.rlim_cur >> 10);
  }
  return text.empty() ? text : text + " (KiB)";
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
