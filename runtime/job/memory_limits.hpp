// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti {

struct AvailableMemory {
  std::size_t bytes;
  std::string source;  ///< what says so, for messages: "MemAvailable", "the cgroup's limit"
};

/// The smallest of what the kernel has available, what the process's cgroups leave, and, for a path
/// of a mounted file system, what that has free. `path` may be null.
AvailableMemory available_memory(const char* path);

/// What the memory limits of a process's cgroups, of version 1 or 2, and of all above them leave;
/// nothing where there is none. `groups` is its /proc/PID/cgroup, `mounted` is /sys/fs/cgroup.
std::optional<std::size_t> cgroup_available(const std::string& groups, const std::string& mounted);

/// Memory of the machine.
std::size_t physical_memory();

}  // namespace tutti
