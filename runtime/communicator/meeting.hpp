// SPDX-License-Identifier: Apache-2.0
// Meetings of ranks that have begun messages, for the package for Python.
#pragma once

#include <span>
#include <vector>

#include "tutti/communicator.hpp"

#include "collectives/engine/meetings.hpp"

namespace tutti {

/// Waits until ranks among `partners` meet this one, see collectives::Meetings::meet(). All ranks
/// of the communicator are in one node, and there is at least one partner.
TUTTI_API std::vector<int> meet(const Communicator& ranks,
                                std::span<const collectives::Partner> partners, int awaited);

}  // namespace tutti
