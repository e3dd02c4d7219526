// SPDX-License-Identifier: Apache-2.0
// Measurements of collective-benchmark, for comparison with simulations of the same calls.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/simulator/measure.hpp"

namespace apps::simulator {

struct Timed {
  SimulatedCall what;
  double seconds = 0;  ///< the median time of the slowest rank
};

/// Reads the calls that can be simulated from a --json of collective-benchmark, in its order: the
/// library's allreduces and pushpulls of float32 sums, out of place, on CPUs. `learns` is that of
/// SimulatedCall, because a file does not have it. Errors  invalid_argument, with the file: it
/// cannot be read, it is no such file, its nodes have different numbers of ranks, or it has none of
/// these calls.
std::vector<Timed> read_measured(const std::filesystem::path& path, bool learns);

/// read_measured() of a text; `where` names it in errors.
std::vector<Timed> measured_of(const std::string& text, const std::string& where, bool learns);

}  // namespace apps::simulator
