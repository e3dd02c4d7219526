// SPDX-License-Identifier: Apache-2.0
// From what the engine counts to the public numbers.
#pragma once

#include "tutti/statistics.hpp"

#include "collectives/meter.hpp"

namespace tutti {

Statistics statistics_of(const collectives::Meter& meter, int rank);

}  // namespace tutti
