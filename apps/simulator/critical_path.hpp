// SPDX-License-Identifier: Apache-2.0
// The critical path of a call: the waits of its slowest rank, traced back to the begin of the call.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/simulated/simulation.hpp"

namespace apps::simulator {

/// Microseconds in a second; results are given in microseconds.
inline constexpr double kMicroseconds = 1e6;

struct CriticalPath {
  int rank = -1;  ///< the slowest rank; -1: nothing was recorded
  double seconds = 0;
  std::array<double, tutti::simulated::kKindsOfSpent> on{};  ///< seconds, by Spent
  double other = 0;  ///< seconds without a known reason: another rank had not begun yet
  std::vector<tutti::simulated::Hop> hops;  ///< in the order of time, from the call's begin on
};

/// The name of a kind, in reports and files.
const char* name_of(tutti::simulated::Spent on);

/// The path of a rank that has just ended a call, which it began at that time.
CriticalPath path_of(const tutti::simulated::Simulation& simulation, int rank,
                     tutti::simulated::Time begin);

/// A path as text, the longest part first: "rank 3: latency 30.0, wire 12.1 us, in 14 hops".
std::string to_text(const CriticalPath& path);

}  // namespace apps::simulator
