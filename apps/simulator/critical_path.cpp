// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/critical_path.hpp"

#include <algorithm>

#include "support/text.hpp"

namespace apps::simulator {

using tutti::simulated::Hop;
using tutti::simulated::kSecond;
using tutti::simulated::Spent;
using tutti::simulated::Time;

namespace {

double in_seconds(Time time) { return static_cast<double>(time) / static_cast<double>(kSecond); }

}  // namespace

const char* name_of(Spent on) {
  switch (on) {
    case Spent::call:
      return "call";
    case Spent::turn:
      return "turn";
    case Spent::overhead:
      return "overhead";
    case Spent::work:
      return "work";
    case Spent::signal:
      return "signal";
    case Spent::question:
      return "question";
    case Spent::port:
      return "port";
    case Spent::wire:
      return "wire";
    case Spent::latency:
      return "latency";
  }
  return "unknown";
}

CriticalPath path_of(const tutti::simulated::Simulation& simulation, int rank, Time begin) {
  CriticalPath path;
  path.rank = rank;
  path.seconds = in_seconds(simulation.now() - begin);
  Time until = simulation.now();
  for (std::int64_t at = simulation.last_hop(rank); at >= 0 && until > begin;) {
    Hop hop = simulation.hop(at);
    hop.end = std::min(hop.end, until);
    hop.begin = std::max(hop.begin, begin);
    if (hop.end > hop.begin) {
      path.on[static_cast<std::size_t>(hop.on)] += in_seconds(hop.end - hop.begin);
      path.hops.push_back(hop);
    }
    until = std::min(until, hop.begin);
    at = hop.previous;
  }
  path.other = path.seconds;
  for (const double seconds : path.on) path.other -= seconds;
  if (path.other < in_seconds(1)) path.other = 0;  // rounding
  std::reverse(path.hops.begin(), path.hops.end());
  return path;
}

std::string to_text(const CriticalPath& path) {
  std::vector<std::pair<double, const char*>> parts;
  for (std::size_t i = 0; i < path.on.size(); ++i) {
    if (path.on[i] > 0) parts.emplace_back(path.on[i], name_of(static_cast<Spent>(i)));
  }
  if (path.other > 0) parts.emplace_back(path.other, "other");
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = "rank " + std::to_string(path.rank) + ": ";
  for (const auto& [seconds, name] : parts) {
    text += std::string(name) + " " + time_text(seconds * kMicroseconds) + ", ";
  }
  return text + "in us; " + std::to_string(path.hops.size()) + " hops";
}

}  // namespace apps::simulator
