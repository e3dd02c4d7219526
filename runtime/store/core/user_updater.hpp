// SPDX-License-Identifier: Apache-2.0
// Running a program's updater.
#pragma once

#include <exception>
#include <string>

#include "tutti/key.hpp"

#include "runtime/job/group.hpp"

namespace tutti {

/// Runs `body`, which calls the updater of a key. What it throws fails the group, since the other
/// ranks' replicas are updated by now, and is passed on.
template <class Body>
void run_updater(Group& group, const Key& key, Body body) {
  const auto fail = [&](const char* what) {
    const auto& topology = group.topology();
    group.engine().raise_failure(ErrorCode::user_code, name_of(topology, topology.rank) +
                                                           ": the updater of key " +
                                                           to_string(key) + " threw: " + what);
  };
  group.engine().begin_update();
  try {
    body();
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail("an exception of unknown type");
    throw;
  }
  group.engine().end_update();
}

}  // namespace tutti
