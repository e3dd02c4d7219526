// SPDX-License-Identifier: Apache-2.0
// Log: messages for people on standard error.
#pragma once

#include <string>

#include "tutti/settings.hpp"

#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// Writes lines such as "tutti: rank 3 (host b): warning: TEXT"; without the rank if the job has
/// only one.
class Log {
 public:
  Log(const Topology& topology, LogLevel most);

  /// True if lines of this level are written. Ask before composing an expensive text.
  [[nodiscard]] bool writes(LogLevel level) const noexcept { return level <= most_; }
  /// Writes a line if writes(level). It is one system call, so that lines of different ranks do not
  /// mix.
  void write(LogLevel level, const std::string& text) const;
  void warn(const std::string& text) const { write(LogLevel::warning, text); }

 private:
  std::string prefix_;
  LogLevel most_;
};

}  // namespace tutti::collectives
