// SPDX-License-Identifier: Apache-2.0
// Groups within one process: a job of one rank and, for tests, groups whose ranks are threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/job/group.hpp"

namespace tutti {

/// Makes a group of this process alone. Never uses MPI.
std::shared_ptr<Group> make_self_group(const Settings& settings);

/// Called for every message between nodes. It may sleep, and returns false to lose the message.
using MessageFilter = std::function<bool(int from_rank, int to_rank, int tag)>;

/// Makes one group for each rank, to be used by one thread each, in nodes of the given sizes. Each
/// arena is ordinary memory with `arena_bytes` of address space.
std::vector<std::shared_ptr<Group>> make_thread_groups(const std::vector<int>& node_sizes,
                                                       const Settings& settings,
                                                       MessageFilter filter = {},
                                                       std::size_t arena_bytes = std::size_t{1}
                                                                                 << 30);

}  // namespace tutti
