// SPDX-License-Identifier: Apache-2.0
// Times over numbers of nodes, as a picture.
#pragma once

#include <span>
#include <string>

#include "apps/simulator/measure.hpp"

namespace apps::simulator {

/// A panel for each size, with a curve for each algorithm, in the order of `all`, which has one
/// collective, compression, kind of buffers and number of ranks per node. Not empty.
std::string to_svg(std::span<const Measured> all, const std::string& network);

}  // namespace apps::simulator
