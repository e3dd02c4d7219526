// SPDX-License-Identifier: Apache-2.0
// What a rank writes down of its calls, on request: statistics, metrics, a trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/statistics.hpp"

#include "collectives/engine.hpp"

namespace tutti {

/// Where reports go. What is empty is not made.
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
