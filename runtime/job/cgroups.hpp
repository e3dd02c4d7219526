// SPDX-License-Identifier: Apache-2.0
// The control groups that limit this process.
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// A group's folder, in version 1 or 2 of cgroups.
struct Cgroup {
  std::string folder;
  int version;
};

/// The groups of a controller ("memory", "cpu") that this process is in: its own and those above
/// it, each of which may limit it. `groups` is its /proc/PID/cgroup, `mounted` is /sys/fs/cgroup.
std::vector<Cgroup> cgroups_of(const std::string& controller,
                               const std::string& groups = "/proc/self/cgroup",
                               const std::string& mounted = "/sys/fs/cgroup");

}  // namespace tutti
