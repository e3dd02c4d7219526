// SPDX-License-Identifier: Apache-2.0
// What this process may compute on.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tutti {

/// Bit i stands for the kernel's number i.
using ProcessorSet = std::array<std::uint64_t, 16>;

int count(const ProcessorSet& set);

/// The hardware threads that the calling thread may run on; none if that cannot be found out.
ProcessorSet usable_hardware_threads();

/// The cores that these are threads of: each stands under the number of its first thread, whether
/// that is usable or not. `folder` is the kernel's; where it says nothing, each is a core.
ProcessorSet cores_of(const ProcessorSet& hardware_threads,
                      const std::string& folder = "/sys/devices/system/cpu");

/// How many processors' time the cgroups of this process (version 1 or 2), and those above them,
/// allow: the least of them, such as 1.2; 0 for no limit. The files: see cgroups_of().
double processor_quota(const std::string& groups = "/proc/self/cgroup",
                       const std::string& mounted = "/sys/fs/cgroup");

/// Cores for each of the ranks of a host that share these, as a topology has it: rounded down, at
/// least 1. `quota`: 0 for none.
int cores_per_rank(const ProcessorSet& cores, double quota, int ranks);

/// Ranks of a host for each hardware thread whose time they may use, as a topology has it: rounded
/// up, at least 1. Ranks that spin through a quota are all stopped once it is used up.
int ranks_per_core(const ProcessorSet& hardware_threads, double quota, int ranks);

/// How many ranks of its job the launcher has started on this host, as far as its variables say:
/// for a process that does not ask MPI. At least 1.
int launched_ranks();

}  // namespace tutti
