// SPDX-License-Identifier: Apache-2.0
// Reports: a rank's statistics, metrics and trace, where they are requested.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/statistics.hpp"

#include "collectives/engine/engine.hpp"

namespace tutti {

/// Destinations of reports. An empty name means no report.
struct ReportTargets {
  /// Receives the statistics when the group ends. In a job they are kept until MPI_Finalize.
  std::function<void(const Statistics&)> summary;
  std::string metrics;  ///< file of this rank
  std::string trace;    ///< file of this host
  /// The beginning of the trace by this host's CLOCK_MONOTONIC, in nanoseconds.
  std::int64_t trace_origin_ns = 0;
  /// Returns the group's name in the program, for the trace, when the group ends. May be empty.
  std::function<std::string()> name;
};

/// Reports an engine's calls. Local. Never throws; what cannot be written causes a warning.
class Reports {
 public:
  Reports(collectives::Engine& engine, ReportTargets targets);
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  /// Returns the destinations for a group of some of these ranks: its calls go to the same trace,
  /// whereas statistics and metrics are only those of the job.
  [[nodiscard]] ReportTargets targets_of_group() const {
    return {.summary = {},
            .metrics = {},
            .trace = targets_.trace,
            .trace_origin_ns = targets_.trace_origin_ns,
            .name = {}};
  }

  /// Ends the group's reports, and writes them.
  void finish() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void write_metrics() noexcept;
  void write_trace();

  collectives::Engine& engine_;
  ReportTargets targets_;
  Clock::time_point next_metrics_;
  bool has_warned_ = false;
};

}  // namespace tutti

namespace tutti::observe {

/// Inserts an infix before the last point of a file name: "dir/tutti.prom" and "3" become
/// "dir/tutti.3.prom". The name of a device or pipe is unchanged.
std::string with_infix(const std::string& path, const std::string& infix);

/// Returns the name of a group's file: unchanged for the first group of a process, "tutti.1.prom"
/// for the second, and so on.
std::string of_group(const std::string& path, int group);

/// Counts one more group of this process with reports, and returns the number of earlier ones.
int next_group() noexcept;

}  // namespace tutti::observe
