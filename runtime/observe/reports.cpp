// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/reports.hpp"

#include <atomic>
#include <new>

#include "tutti/error.hpp"

#include "runtime/base/output.hpp"
#include "runtime/observe/prometheus.hpp"
#include "runtime/observe/statistics.hpp"
#include "runtime/observe/trace.hpp"

namespace tutti {

namespace {

constexpr auto kMetricsEvery = std::chrono::seconds(10);
constexpr std::size_t kMostSpans = std::size_t{1} << 20;  // 40 MB, and about 120 MB of text

}  // namespace

Reports::Reports(collectives::Engine& engine, ReportTargets targets)
    : engine_(engine), targets_(std::move(targets)), next_metrics_(Clock::now()) {
  if (!targets_.trace.empty()) engine_.keep_spans(kMostSpans);
  if (!targets_.metrics.empty()) {
    engine_.statistics().set_listener([this] {
      if (Clock::now() >= next_metrics_) write_metrics();
    });
  }
}

void Reports::write_metrics() noexcept {
  next_metrics_ = Clock::now() + kMetricsEvery;
  try {
    const auto& topology = engine_.topology();
    write_output(targets_.metrics,
                 observe::prometheus_text(statistics_of(engine_.statistics(), topology.rank),
                                          topology.names->host_of(topology.rank)));
  } catch (const std::bad_alloc&) {  // the next attempt may succeed
  } catch (const std::exception& error) {
    if (!has_warned_) engine_.log().warn(std::string("TUTTI_PROMETHEUS: ") + error.what());
    has_warned_ = true;  // warns only once
  }
}

void Reports::write_trace() {
  const collectives::SpanLog& spans = *engine_.statistics().spans();
  const std::string name = targets_.name ? targets_.name() : "";
  observe::append_trace(targets_.trace,
                        observe::trace_events(engine_, name, targets_.trace_origin_ns));
  if (spans.dropped() == 0) return;
  engine_.log().warn("TUTTI_TRACE: " + targets_.trace + " has this rank's first " +
                     std::to_string(spans.spans().size()) + " stretches of time; " +
                     std::to_string(spans.dropped()) +
                     " more did not fit into memory; trace a shorter job");
}

/// Writes the reports. They are also written if an exception destroys the engine.
void Reports::finish() noexcept {
  engine_.statistics().set_listener(nullptr);
  if (!targets_.metrics.empty()) write_metrics();
  try {
    if (targets_.summary) {
      targets_.summary(statistics_of(engine_.statistics(), engine_.topology().rank));
    }
    if (!targets_.trace.empty()) write_trace();
  } catch (const std::bad_alloc&) {  // there is no memory even for a warning
  } catch (const std::exception& error) {
    engine_.log().warn(error.what());
  }
}

}  // namespace tutti

namespace tutti::observe {

std::string with_infix(const std::string& path, const std::string& infix) {
  if (is_stream(path)) return path;
  const std::size_t slash = path.rfind('/');
  const std::size_t first = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t point = path.rfind('.');
  if (point == std::string::npos || point <= first) return path + "." + infix;
  return path.substr(0, point) + "." + infix + path.substr(point);
}

std::string of_group(const std::string& path, int group) {
  return path.empty() || group == 0 ? path : with_infix(path, std::to_string(group));
}

/// Counts the groups of the process, because files are named per process.
int next_group() noexcept {
  static std::atomic<int> groups{0};
  return groups++;
}

}  // namespace tutti::observe
