// SPDX-License-Identifier: Apache-2.0
// What a rank writes about its calls, if it is asked to: statistics, metrics, a trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/statistics.hpp"

#include "collectives/engine/engine.hpp"

namespace tutti {

/// Where reports go. An empty name means no report.
struct ReportTargets {
  /// Takes the statistics when the group ends. In a job they wait for MPI_Finalize.
  std::function<void(const Statistics&)> summary;
  std::string metrics;  ///< this rank's file
  std::string trace;    ///< this host's file
  /// CLOCK_MONOTONIC of this host, in nanoseconds, when the trace begins.
  std::int64_t trace_origin_ns = 0;
};

/// Listens to an engine's calls. Local; does not throw, but says on standard error what cannot be
/// written.
class Reports {
 public:
  Reports(collectives::Engine& engine, ReportTargets targets);
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  /// What a group of some of these ranks reports: its calls go to the same trace. Statistics and
  /// metrics are the job's alone.
  [[nodiscard]] ReportTargets targets_of_group() const {
    return {.summary = {},
            .metrics = {},
            .trace = targets_.trace,
            .trace_origin_ns = targets_.trace_origin_ns};
  }

  /// The group ends.
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

/// "dir/tutti.3.prom" from "dir/tutti.prom" and "3": inserts it before the last point of the name.
/// A device or a pipe has one name, which stays.
std::string with_infix(const std::string& path, const std::string& infix);

/// The name as it is for the first group of a process; "tutti.1.prom" for the second, and so on.
std::string of_group(const std::string& path, int group);

/// How many groups this process has made reports for before; counts this one.
int next_group() noexcept;

}  // namespace tutti::observe
