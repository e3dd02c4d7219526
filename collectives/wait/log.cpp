// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/log.hpp"

#include <cstdio>

#include "collectives/job/names.hpp"

namespace tutti::collectives {

Log::Log(const Topology& topology, LogLevel most)
    : prefix_(topology.size == 1 ? "tutti: " : "tutti: " + name_of(topology, topology.rank) + ": "),
      most_(most) {}

void Log::write(LogLevel level, const std::string& text) const {
  if (!writes(level)) return;
  constexpr const char* kNames[] = {"", "warning: ", "info: ", "debug: "};
  std::fputs((prefix_ + name_in<LogLevel::debug>(kNames, level) + text + "\n").c_str(), stderr);
}

}  // namespace tutti::collectives
