// SPDX-License-Identifier: Apache-2.0
// Network interfaces, by the networks that their addresses are in.
#pragma once

#include <vector>

#include "apps/doctor/facts.hpp"

namespace apps::doctor {

/// Those of IP version 4 that are up, without the loopback.
std::vector<Interface> interfaces_up();

}  // namespace apps::doctor
