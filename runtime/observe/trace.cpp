// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_map>

#include "tutti/error.hpp"

#include "collectives/job/names.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/output.hpp"
#include "runtime/observe/statistics.hpp"

namespace tutti::observe {

namespace {

using collectives::Activity;
using collectives::AsyncSpan;
using collectives::AsyncStep;
using collectives::AsyncTimes;
using collectives::CallTotals;
using collectives::Span;

const char* to_string(Activity activity) {
  constexpr const char* kNames[] = {"call",
                                    "prepare",
                                    "wait for ranks",
                                    "wait for nodes",
                                    "copy in",
                                    "reduce",
                                    "reduce and update",
                                    "wait for shares",
                                    "network",
                                    "copy out",
                                    "update",
                                    "store"};
  return collectives::name_in<Activity::finish>(kNames, activity);
}

/// Returns a JSON string, in which bytes that are not UTF-8 are replaced.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  /// `rank`: the rank in the job. If `group` is not 0, the events of that group are shown as
  /// another thread.
  Writer(const collectives::StatisticsCollector& statistics, int rank, int group,
         std::int64_t origin_ns)
      : process_(std::to_string(rank + 1)),
        thread_(group == 0 ? process_ : std::to_string(kThreadsPerGroup * group + rank + 1)),
        first_ticks_(static_cast<double>(statistics.first_ticks())),
        ns_per_tick_(statistics.seconds_per_tick() * 1e9),
        first_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      statistics.first_time().time_since_epoch())
                      .count() -
                  origin_ns) {}

  void metadata(const char* name, const std::string& argument) {
    begin();
    text_ += std::string(R"({"ph":"M","name":")") + name + R"(","pid":)" + process_ + R"(,"tid":)" +
             thread_ + R"(,"args":{)" + argument + "}}";
  }

  void span(const Span& span) {
    const std::int64_t from = ns_at(span.begin);
    const std::int64_t length = std::max<std::int64_t>(ns_at(span.end) - from, 0);
    event('X', name_of(span), span.begin);
    text_ += R"(,"dur":)" + microseconds(length);
    if (span.activity == Activity::call) {
      text_ += R"(,"args":{"bytes":)" + std::to_string(span.value) + route_of(span) + "}";
    } else if (span.activity == Activity::wait_for_ranks) {
      text_ += R"(,"args":{"last rank":)" + std::to_string(span.value) + "}";
    }
    text_ += "}";
  }

  /// Writes an asynchronous call, with its stages below it.
  void async_span(const AsyncSpan& span) {
    const AsyncTimes& times = span.times;
    const std::string& name = name_of(*span.totals);
    const std::uint64_t begun = std::max(times.begun, times.submitted);
    ++async_calls_;
    async_event('b', name, times.submitted, R"("bytes":)" + std::to_string(span.bytes));
    if (times.last_rank >= 0 && times.met != 0) {
      async_part("wait for ranks", times.submitted, times.met,
                 R"("last rank":)" + std::to_string(times.last_rank));
      async_part("queued", times.met, begun);
    } else {
      async_part("queued", times.submitted, begun);
    }
    async_part("move", begun, times.moved);
    if (times.moved < times.done) async_part("update", times.moved, times.done);
    async_event('e', name, times.done);
  }

  /// Writes a step of asynchronous calls, and a counter of their hidden share.
  void async_step(const AsyncStep& step) {
    const double share =
        collectives::hidden_share(static_cast<double>(step.busy), static_cast<double>(step.waited));
    const std::string hidden = R"("hidden %":)" + std::to_string(std::lround(100 * share));
    ++async_calls_;
    async_event('b', R"("asynchronous calls")", step.begin,
                R"("calls":)" + std::to_string(step.calls) + R"(,"bytes":)" +
                    std::to_string(step.bytes) + R"(,"busy us":)" + length(step.busy) +
                    R"(,"waited us":)" + length(step.waited) + "," + hidden);
    async_event('e', R"("asynchronous calls")", step.end);
    event('C', R"("hidden %")", step.end);
    text_ += R"(,"args":{)" + hidden + "}}";
  }

  std::string take() { return std::move(text_); }

 private:
  void begin() {
    if (!text_.empty()) text_ += ",\n";
  }
  /// Writes the beginning of an event, without its closing brace.
  void event(char phase, const std::string& name, std::uint64_t ticks) {
    begin();
    text_ += std::string(R"({"ph":")") + phase + R"(","name":)" + name + R"(,"pid":)" + process_ +
             R"(,"tid":)" + thread_ + R"(,"ts":)" + microseconds(ns_at(ticks));
  }
  /// Writes the beginning or the end of an event that may overlap with others; `arguments` may be
  /// empty.
  void async_event(char phase, const std::string& name, std::uint64_t ticks,
                   const std::string& arguments = {}) {
    event(phase, name, ticks);
    text_ += R"(,"cat":"async","id2":{"local":")" + thread_ + "." + std::to_string(async_calls_) +
             R"("})";
    if (!arguments.empty()) text_ += R"(,"args":{)" + arguments + "}";
    text_ += "}";
  }
  void async_part(const char* name, std::uint64_t from, std::uint64_t to,
                  const std::string& arguments = {}) {
    const std::string quoted = std::string("\"") + name + "\"";
    async_event('b', quoted, from, arguments);
    async_event('e', quoted, to);
  }
  [[nodiscard]] std::string length(std::uint64_t ticks) const {
    return microseconds(static_cast<std::int64_t>(static_cast<double>(ticks) * ns_per_tick_));
  }
  [[nodiscard]] std::int64_t ns_at(std::uint64_t ticks) const {
    return first_ns_ +
           static_cast<std::int64_t>((static_cast<double>(ticks) - first_ticks_) * ns_per_tick_);
  }
  static std::string route_of(const Span& span) {
    if (span.route == 0) return {};
    return std::string(R"(,"route":")") +
           collectives::name_of(static_cast<collectives::Route>(span.route - 1)) + "\"";
  }
  static std::string microseconds(std::int64_t ns) {
    std::array<char, 48> text{};
    const auto magnitude = static_cast<unsigned long long>(ns < 0 ? -ns : ns);
    std::snprintf(text.data(), text.size(), "%s%llu.%03llu", ns < 0 ? "-" : "", magnitude / 1000,
                  magnitude % 1000);
    return text.data();
  }
  const std::string& name_of(const Span& span) {
    if (span.totals != nullptr) return name_of(*span.totals);
    std::string& name = activities_[static_cast<int>(span.activity)];
    if (name.empty()) name = json_text(to_string(span.activity));
    return name;
  }
  const std::string& name_of(const CallTotals& totals) {
    std::string& name = calls_[&totals];
    if (name.empty()) name = json_text(call_to_string(totals.call, totals.keys));
    return name;
  }

  static constexpr std::int64_t kThreadsPerGroup = 1'000'000;

  std::string process_;
  std::string thread_;
  double first_ticks_;
  double ns_per_tick_;
  std::int64_t first_ns_;
  std::unordered_map<const CallTotals*, std::string> calls_;
  std::unordered_map<int, std::string> activities_;
  std::uint64_t async_calls_ = 0;
  std::string text_;
};

/// Sorts each call before its activities, because viewers nest slices in the order in which they
/// begin.
std::vector<Span> in_order(std::span<const Span> spans) {
  std::vector<Span> ordered(spans.begin(), spans.end());
  std::ranges::stable_sort(ordered, [](const Span& left, const Span& right) {
    return left.begin != right.begin ? left.begin < right.begin : left.end > right.end;
  });
  return ordered;
}

}  // namespace

std::string trace_events(collectives::Engine& engine, const std::string& group,
                         std::int64_t origin_ns) {
  const collectives::Topology& topology = engine.topology();
  const std::string host = topology.names->host_of(topology.rank);
  const int rank = topology.job_rank();
  Writer writer(engine.statistics(), rank, topology.group, origin_ns);
  const std::string name = "rank " + std::to_string(rank) + ", host " + host;
  writer.metadata("process_name", R"("name":)" + json_text(name));
  writer.metadata("process_sort_index", R"("sort_index":)" + std::to_string(rank));
  const std::string calls = "calls" + (group.empty() ? "" : " on " + group) + of_group(topology);
  writer.metadata("thread_name", R"("name":)" + json_text(calls));
  const collectives::SpanLog& log = *engine.statistics().spans();
  for (const Span& span : in_order(log.spans())) writer.span(span);
  for (const AsyncSpan& span : log.async_spans()) writer.async_span(span);
  for (const AsyncStep& step : log.async_steps()) writer.async_step(step);
  return writer.take();
}

namespace {

using checkpoint::File;

constexpr std::string_view kEnd = "\n]\n";
constexpr std::uint64_t kTailBytes = std::uint64_t{1} << 20;  // longer than any line

std::string head(std::uint64_t job) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(),
                R"([
{"ph":"M","name":"process_labels","pid":1,"tid":1,"args":{"labels":"job %016llx"}})",
                static_cast<unsigned long long>(job));
  return text.data();
}

std::string tail_of(const File& file, std::uint64_t from) {
  std::string text(file.size() - from, '\0');
  file.read(std::as_writable_bytes(std::span(text)), from);
  return text;
}

/// Returns the end of the last complete event.
std::uint64_t end_of_events(const File& file) {
  const std::uint64_t bytes = file.size();
  const std::uint64_t from = bytes - std::min(bytes, kTailBytes);
  const std::string tail = tail_of(file, from);
  if (tail.ends_with(kEnd)) return bytes - kEnd.size();
  for (std::size_t line = tail.rfind('\n'); line != std::string::npos && line > 1;
       line = tail.rfind('\n', line - 1)) {
    if (tail[line - 1] == '}') return from + line;
    if (tail[line - 1] == ',' && tail[line - 2] == '}') return from + line - 1;
  }
  throw Error(ErrorCode::io, file.path().string() +
                                 " is no trace any more: no event was found in it; who else "
                                 "writes to it?");
}

void lock(File& file, std::chrono::duration<double> patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (!file.lock()) {
    if (std::chrono::steady_clock::now() > limit) {
      throw Error(ErrorCode::timeout, file.path().string() + " was locked by another process for " +
                                          seconds_to_string(patience.count()) +
                                          ", so this rank's events are not in it; is a rank "
                                          "stopped while it writes?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

/// Creates a trace. A device or a pipe receives events as they come; a trace without its closing
/// bracket is also valid.
void create_trace(const std::string& path, std::uint64_t job) {
  Output output = Output::open(path, O_RDWR);
  if (!output.is_regular()) return output.write(head(job));
  File file = File::adopt(path, output.take());
  file.resize(0);
  file.write(head(job) + std::string(kEnd), 0);
}

bool is_trace_of(const std::string& path, std::uint64_t job) noexcept {
  if (is_stream(path)) return true;  // /dev/null is the same on every host
  try {
    const std::string expected = head(job);
    std::string found(expected.size(), '\0');
    File::open(path).read(std::as_writable_bytes(std::span(found)), 0);
    return found == expected;
  } catch (const std::exception&) {
    return false;
  }
}

void append_trace(const std::string& path, const std::string& events,
                  std::chrono::duration<double> patience) {
  Output output = Output::open(path, O_RDWR);
  if (!output.is_regular()) return output.write(",\n" + events);
  File file = File::adopt(path, output.take());
  lock(file, patience);
  const std::uint64_t end = end_of_events(file);
  if (end + kEnd.size() < file.size()) file.resize(end);
  try {
    file.write(",\n" + events + std::string(kEnd), end);
  } catch (const Error&) {
    file.resize(end);  // on a full disk: the earlier events are worth keeping
    file.write(std::string(kEnd), end);
    throw;
  }
}

}  // namespace tutti::observe
