// SPDX-License-Identifier: Apache-2.0
// The processors, and their time, that this process may use.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tutti {

/// A set of processors, in which bit i is processor i in the kernel's numbering.
using ProcessorSet = std::array<std::uint64_t, 16>;

int count(const ProcessorSet& set);

/// Returns the hardware threads that the calling thread may run on; none if they cannot be
/// determined.
ProcessorSet usable_hardware_threads();

/// Returns the cores of these hardware threads. A core is identified by its first thread, even if
/// that is not usable. `folder` is the kernel's; if it has no information, each thread is a core.
ProcessorSet cores_of(const ProcessorSet& hardware_threads,
                      const std::string& folder = "/sys/devices/system/cpu");

/// Returns the processor time that the cgroups of this process (version 1 or 2), and those above,
/// allow: the smallest number of processors, such as 1.2; 0 for no limit. For the files see
/// cgroups_of().
double processor_quota(const std::string& groups = "/proc/self/cgroup",
                       const std::string& mounted = "/sys/fs/cgroup");

/// Returns Topology::cores_per_rank: the cores for each of the ranks of a host that share these,
/// rounded down, at least 1. `quota`: 0 for none.
int cores_per_rank(const ProcessorSet& cores, double quota, int ranks);

/// Returns Topology::ranks_per_core: the ranks of a host per hardware thread whose time they may
/// use, rounded up, at least 1. Ranks that spin are all stopped once the quota is used up.
int ranks_per_core(const ProcessorSet& hardware_threads, double quota, int ranks);

/// Returns the number of ranks that the launcher has started on this host, according to its
/// variables, without asking MPI. At least 1.
int launched_ranks();

}  // namespace tutti
