// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/rig.hpp"
#include "tests/support/host_machine.hpp"

namespace test {

/// A rig whose counters can be read, and whose work runs when `work` or a read says so.
std::unique_ptr<Rig> make_host_rig(HostWork& work);

}  // namespace test
