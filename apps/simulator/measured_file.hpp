// SPDX-License-Identifier: Apache-2.0
// What collective-benchmark has measured, to be simulated beside.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/simulator/measure.hpp"

namespace apps::simulator {

struct Timed {
  SimulatedCall what;
  double seconds = 0;  ///< the median, of the slowest rank
};

/// The library's allreduces and pushpulls of float32 sums, out of place, on CPUs, which is what is
/// simulated, from a --json of collective-benchmark, in its order. `learns`: as in SimulatedCall,
/// because a file does not say it. Errors  invalid_argument, with the file: it cannot be read, it
/// is no such file, its nodes have different numbers of ranks, or it has none of these.
std::vector<Timed> read_measured(const std::filesystem::path& path, bool learns);

/// read_measured() of a text; `where` names it in errors.
std::vector<Timed> measured_of(const std::string& text, const std::string& where, bool learns);

}  // namespace apps::simulator
