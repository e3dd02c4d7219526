// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/prometheus.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "collectives/text/numbers.hpp"

namespace tutti::observe {

namespace {

/// Limits the ranks that are named as waited for. Otherwise a job of N ranks would have N * N
/// series.
constexpr std::size_t kMostRanks = 10;

std::string number(double value) { return significant(value, 9); }

/// Quotes the value of a label, and escapes quotes, backslashes and line feeds.
std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

class Metrics {
 public:
  explicit Metrics(std::string labels) : labels_(std::move(labels)) {}

  void begin(const std::string& name, const char* help, const char* type = "counter") {
    name_ = name;
    text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void value(const std::string& value, const std::string& more_labels = "") {
    text_ += name_ + "{" + labels_ + more_labels + "} " + value + "\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string labels_;
  std::string name_;
  std::string text_;
};

struct Column {
  const char* suffix;
  const char* help;
  std::string (*of)(const CallStatistics&);
};

constexpr std::array<Column, 4> kColumns = {{
    {"_total", "Calls.", [](const CallStatistics& calls) { return std::to_string(calls.calls); }},
    {"_bytes_total", "Bytes of the values in these calls.",
     [](const CallStatistics& calls) { return std::to_string(calls.bytes); }},
    {"_seconds_total", "Time in these calls.",
     [](const CallStatistics& calls) { return number(calls.seconds); }},
    {"_waiting_seconds_total", "Time in these calls until every rank had arrived.",
     [](const CallStatistics& calls) { return number(calls.waiting_seconds); }},
}};

void add_call(Metrics& metrics, const Statistics& statistics, const std::string& call) {
  const CallStatistics total = statistics.total(call);
  for (const Column& column : kColumns) {
    metrics.begin("tutti_" + call + column.suffix, column.help);
    metrics.value(column.of(total));
  }
}

void add_other_calls(Metrics& metrics, const Statistics& statistics) {
  std::set<std::string> names;
  for (const CallStatistics& one : statistics.calls) names.insert(one.call);
  names.erase("push");
  names.erase("pull");
  if (names.empty()) return;
  for (const Column& column : kColumns) {
    metrics.begin(std::string("tutti_call") + column.suffix, column.help);
    for (const std::string& name : names) {
      metrics.value(column.of(statistics.total(name)), ",call=" + quoted(name));
    }
  }
}

void add_last(Metrics& metrics, const Statistics& statistics) {
  const CallStatistics all = statistics.total();
  const std::size_t shown = std::min(kMostRanks, all.last.size());
  if (shown == 0) return;
  const auto label = [](const LastRank& late) {
    return ",last=" + quoted(std::to_string(late.rank));
  };
  metrics.begin("tutti_last_total", "Calls in which rank `last` arrived last.");
  for (std::size_t i = 0; i < shown; ++i) {
    metrics.value(std::to_string(all.last[i].calls), label(all.last[i]));
  }
  metrics.begin("tutti_waited_for_seconds_total", "Time waited for rank `last`.");
  for (std::size_t i = 0; i < shown; ++i) {
    metrics.value(number(all.last[i].seconds), label(all.last[i]));
  }
}

}  // namespace

std::string prometheus_text(const Statistics& statistics, const std::string& host) {
  Metrics metrics("rank=" + quoted(std::to_string(statistics.rank)) + ",host=" + quoted(host));
  metrics.begin("tutti_uptime_seconds", "Time since the store was made.", "gauge");
  metrics.value(number(statistics.seconds));
  add_call(metrics, statistics, "push");
  add_call(metrics, statistics, "pull");
  add_other_calls(metrics, statistics);
  add_last(metrics, statistics);
  return metrics.text();
}

}  // namespace tutti::observe
