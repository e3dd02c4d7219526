// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti {

struct AvailableMemory {
  std::size_t bytes;
  std::string source;  ///< for messages: "MemAvailable", "the cgroup's limit"
};

/// The least of three: what the kernel has available, what the process's cgroups leave, and what
/// the file system of `path` has free. `path` may be null.
AvailableMemory available_memory(const char* path);

/// "; set here: ulimit -v 600000, ulimit -d 1024 (KiB)": the limits of addresses, data and locked
/// memory that a call which failed for want of memory may have met; empty if there are none.
std::string limits_of_memory();

/// What the memory limits of a process's cgroups (version 1 or 2), and of the cgroups above them,
/// leave. No value if there is no limit. `groups` is its /proc/PID/cgroup, `mounted` is
/// /sys/fs/cgroup.
std::optional<std::size_t> cgroup_available(const std::string& groups, const std::string& mounted);

/// Memory of the machine.
std::size_t physical_memory();

}  // namespace tutti
