// SPDX-License-Identifier: Apache-2.0
// Groups whose deadline passes while all ranks are present.
#pragma once

#include <chrono>

#include "tutti/communicator.hpp"

#include "runtime/job/group.hpp"

namespace test {

/// Splits like split(), but the group's calls have another deadline than the split itself, to which
/// a rank may come late on a busy machine. So the deadline may be short where one rank alone lets
/// it pass. Collective; the communicator itself keeps its deadline.
inline tutti::Communicator hasty_group(tutti::Communicator& world, int color,
                                       std::chrono::duration<double> deadline) {
  auto& settings =
      const_cast<tutti::Settings&>(world.group()->settings());  // a new group copies them
  settings.timeout = deadline;
  return world.split(color);
}

}  // namespace test
