// SPDX-License-Identifier: Apache-2.0
// What the slowest rank of a call waited for, back to where the call began.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/simulated/simulation.hpp"

namespace apps::simulator {

/// In a second: what results are given in.
inline constexpr double kMicroseconds = 1e6;

struct CriticalPath {
  int rank = -1;  ///< the slowest; -1: nothing was recorded
  double seconds = 0;
  std::array<double, tutti::simulated::kKindsOfSpent> on{};  ///< seconds, by Spent
  double other = 0;  ///< for which no reason is known: another rank had not begun yet
  std::vector<tutti::simulated::Hop> hops;  ///< in the order of time, from the call's begin on
};

/// The kinds, in the words of reports and files.
const char* name_of(tutti::simulated::Spent on);

/// The path of a rank that has just ended a call, which it began at that time.
CriticalPath path_of(const tutti::simulated::Simulation& simulation, int rank,
                     tutti::simulated::Time begin);

/// "rank 3: latency 30.0, wire 12.1 us, in 14 hops", the longest first.
std::string to_text(const CriticalPath& path);

}  // namespace apps::simulator
