// SPDX-License-Identifier: Apache-2.0
// Lines on standard error, for people.
#pragma once

#include <string>

#include "tutti/settings.hpp"

#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// Writes lines such as "tutti: rank 3 (host b): warning: TEXT"; without the rank if there is only
/// one.
class Log {
 public:
  Log(const Topology& topology, LogLevel most);

  /// True if lines of this level are written: for texts that take time to make.
  [[nodiscard]] bool writes(LogLevel level) const noexcept { return level <= most_; }
  /// Nothing where writes(level) is false. One system call, so that lines of ranks do not mix.
  void write(LogLevel level, const std::string& text) const;
  void warn(const std::string& text) const { write(LogLevel::warning, text); }

 private:
  std::string prefix_;
  LogLevel most_;
};

}  // namespace tutti::collectives
