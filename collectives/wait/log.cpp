// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/log.hpp"

#include <cstdio>

namespace tutti::collectives {

namespace {

const char* to_string(LogLevel level) {
  switch (level) {
    case LogLevel::quiet:
      break;
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::info:
      return "info: ";
    case LogLevel::debug:
      return "debug: ";
  }
  return "";
}

}  // namespace

Log::Log(const Topology& topology, LogLevel most)
    : prefix_(topology.size == 1 ? "tutti: " : "tutti: " + name_of(topology, topology.rank) + ": "),
      most_(most) {}

void Log::write(LogLevel level, const std::string& text) const {
  if (!writes(level)) return;
  std::fputs((prefix_ + to_string(level) + text + "\n").c_str(), stderr);
}

}  // namespace tutti::collectives
