// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/reports.hpp"

#include "runtime/observe/prometheus.hpp"
#include "runtime/observe/statistics.hpp"
#include "runtime/observe/trace_file.hpp"
#include "runtime/observe/trace_json.hpp"

namespace tutti {

namespace {

constexpr auto kMetricsEvery = std::chrono::seconds(10);
constexpr std::size_t kMostSpans = std::size_t{1} << 20;  // 40 MB, and some 120 MB of text

}  // namespace

Reports::Reports(collectives::Engine& engine, ReportTargets targets)
    : engine_(engine), targets_(std::move(targets)), next_metrics_(Clock::now()) {
  if (!targets_.trace.empty()) engine_.keep_spans(kMostSpans);
  if (!targets_.metrics.empty()) {
    engine_.meter().set_listener([this] {
      if (Clock::now() >= next_metrics_) write_metrics();
    });
  }
}

void Reports::write_metrics() noexcept {
  next_metrics_ = Clock::now() + kMetricsEvery;
  try {
    const auto& topology = engine_.topology();
    const auto rank = static_cast<std::size_t>(topology.rank);
    observe::replace_file(targets_.metrics,
                          observe::prometheus_text(statistics_of(engine_.meter(), topology.rank),
                                                   topology.hosts[rank]));
  } catch (const std::exception& error) {
    if (!has_warned_) engine_.log().warn(std::string("TUTTI_PROMETHEUS: ") + error.what());
    has_warned_ = true;  // once is enough
  }
}

void Reports::write_trace() {
  const collectives::SpanLog& spans = *engine_.meter().spans();
  observe::append_trace(targets_.trace, observe::trace_events(engine_, targets_.trace_origin_ns));
  if (spans.dropped() == 0) return;
  engine_.log().warn("TUTTI_TRACE: " + targets_.trace + " has this rank's first " +
                     std::to_string(spans.spans().size()) + " stretches of time; " +
                     std::to_string(spans.dropped()) +
                     " more did not fit into memory; trace a shorter job");
}

/// An engine is destroyed by an exception, too: what there is until then is worth having.
void Reports::finish() noexcept {
  engine_.meter().set_listener(nullptr);
  if (!targets_.metrics.empty()) write_metrics();
  try {
    if (targets_.summary) {
      targets_.summary(statistics_of(engine_.meter(), engine_.topology().rank));
    }
    if (!targets_.trace.empty()) write_trace();
  } catch (const std::exception& error) {
    engine_.log().warn(error.what());
  }
}

}  // namespace tutti
