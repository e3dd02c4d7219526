// SPDX-License-Identifier: Apache-2.0
// Cgroups: the control groups that limit this process.
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// The folder of a control group, and its version of cgroups, 1 or 2.
struct Cgroup {
  std::string folder;
  int version;
};

/// Returns the groups of a controller ("memory", "cpu") that this process belongs to: its own and
/// those above, each of which may limit it. `groups` is its /proc/PID/cgroup, `mounted` is
/// /sys/fs/cgroup.
std::vector<Cgroup> cgroups_of(const std::string& controller,
                               const std::string& groups = "/proc/self/cgroup",
                               const std::string& mounted = "/sys/fs/cgroup");

}  // namespace tutti
