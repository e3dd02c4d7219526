// SPDX-License-Identifier: Apache-2.0
// Limits of the memory that this process may still allocate.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti {

struct AvailableMemory {
  std::size_t bytes;
  std::string source;  ///< for messages: "MemAvailable", "the cgroup's limit"
};

/// Returns the minimum of three values: the memory that the kernel has available, what the
/// process's cgroups leave, and the free space of the file system of `path`, which may be null.
AvailableMemory available_memory(const char* path);

/// Returns the limits of address space, data and locked memory that may have made a call fail, such
/// as "; set here: ulimit -v 600000, ulimit -d 1024 (KiB)"; empty if there are none.
std::string limits_of_memory();

/// Returns the memory that the limits of a process's cgroups (version 1 or 2) leave, including
/// those of the cgroups above; nothing if there is no limit. `groups` is its /proc/PID/cgroup,
/// `mounted` is /sys/fs/cgroup.
std::optional<std::size_t> cgroup_available(const std::string& groups, const std::string& mounted);

/// Returns the size of the machine's memory.
std::size_t physical_memory();

}  // namespace tutti
