// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace_json.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/observe/text.hpp"

namespace tutti::observe {

namespace {

using collectives::Activity;
using collectives::Span;
using collectives::Tally;

const char* to_string(Activity activity) {
  switch (activity) {
    case Activity::call:
      return "call";
    case Activity::prepare:
      return "prepare";
    case Activity::wait_for_ranks:
      return "wait for ranks";
    case Activity::wait_for_nodes:
      return "wait for nodes";
    case Activity::copy_in:
      return "copy in";
    case Activity::reduce:
      return "reduce";
    case Activity::reduce_and_update:
      return "reduce and update";
    case Activity::wait_in_node:
      return "wait for shares";
    case Activity::network:
      return "network";
    case Activity::copy_out:
      return "copy out";
    case Activity::update:
      return "update";
    case Activity::finish:
      return "store";
  }
  return "unknown";
}

/// A JSON string; what is not UTF-8 is replaced.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  Writer(const collectives::Meter& meter, int rank, std::int64_t origin_ns)
      : process_(std::to_string(rank + 1)),
        first_ticks_(static_cast<double>(meter.first_ticks())),
        ns_per_tick_(meter.seconds_per_tick() * 1e9),
        first_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      meter.first_time().time_since_epoch())
                      .count() -
                  origin_ns) {}

  void metadata(const char* name, const std::string& argument) {
    begin();
    text_ += std::string(R"({"ph":"M","name":")") + name + R"(","pid":)" + process_ + R"(,"tid":)" +
             process_ + R"(,"args":{)" + argument + "}}";
  }

  void span(const Span& span) {
    const std::int64_t from = ns_at(span.begin);
    const std::int64_t length = std::max<std::int64_t>(ns_at(span.end) - from, 0);
    begin();
    text_ += R"({"ph":"X","name":)" + name_of(span) + R"(,"pid":)" + process_ + R"(,"tid":)" +
             process_ + R"(,"ts":)" + microseconds(from) + R"(,"dur":)" + microseconds(length);
    if (span.activity == Activity::call) {
      text_ += R"(,"args":{"bytes":)" + std::to_string(span.value) + "}";
    } else if (span.activity == Activity::wait_for_ranks) {
      text_ += R"(,"args":{"last rank":)" + std::to_string(span.value) + "}";
    }
    text_ += "}";
  }

  std::string take() { return std::move(text_); }

 private:
  void begin() {
    if (!text_.empty()) text_ += ",\n";
  }
  [[nodiscard]] std::int64_t ns_at(std::uint64_t ticks) const {
    return first_ns_ +
           static_cast<std::int64_t>((static_cast<double>(ticks) - first_ticks_) * ns_per_tick_);
  }
  static std::string microseconds(std::int64_t ns) {
    std::array<char, 48> text{};
    const auto magnitude = static_cast<unsigned long long>(ns < 0 ? -ns : ns);
    std::snprintf(text.data(), text.size(), "%s%llu.%03llu", ns < 0 ? "-" : "", magnitude / 1000,
                  magnitude % 1000);
    return text.data();
  }
  const std::string& name_of(const Span& span) {
    std::string& name =
        span.tally != nullptr ? calls_[span.tally] : activities_[static_cast<int>(span.activity)];
    if (name.empty()) {
      name = json_text(span.tally != nullptr ? call_to_string(span.tally->call, span.tally->keys)
                                             : to_string(span.activity));
    }
    return name;
  }

  std::string process_;
  double first_ticks_;
  double ns_per_tick_;
  std::int64_t first_ns_;
  std::unordered_map<const Tally*, std::string> calls_;
  std::unordered_map<int, std::string> activities_;
  std::string text_;
};

/// A call before what happens in it: viewers nest slices in the order in which they begin.
std::vector<Span> in_order(std::span<const Span> spans) {
  std::vector<Span> ordered(spans.begin(), spans.end());
  std::ranges::stable_sort(ordered, [](const Span& left, const Span& right) {
    return left.begin != right.begin ? left.begin < right.begin : left.end > right.end;
  });
  return ordered;
}

}  // namespace

std::string trace_events(collectives::Engine& engine, std::int64_t origin_ns) {
  const collectives::Topology& topology = engine.topology();
  const std::string& host = topology.hosts[static_cast<std::size_t>(topology.rank)];
  Writer writer(engine.meter(), topology.rank, origin_ns);
  writer.metadata("process_name", R"("name":)" + json_text("rank " + std::to_string(topology.rank) +
                                                           ", host " + host));
  writer.metadata("process_sort_index", R"("sort_index":)" + std::to_string(topology.rank));
  writer.metadata("thread_name", R"("name":"calls")");
  for (const Span& span : in_order(engine.meter().spans()->spans())) writer.span(span);
  return writer.take();
}

}  // namespace tutti::observe
