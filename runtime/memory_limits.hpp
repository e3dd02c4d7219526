// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

struct AvailableMemory {
  std::size_t bytes;
  std::string source;  ///< what says so, for messages: "MemAvailable", "cgroup memory.max"
};

/// The smallest of what the kernel has available, what the process's cgroups leave, and, for a path
/// of a mounted file system, what that has free. `path` may be null.
AvailableMemory available_memory(const char* path);

/// Memory of the machine.
std::size_t physical_memory();

}  // namespace tutti
