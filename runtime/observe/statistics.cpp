// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/statistics.hpp"

#include <algorithm>
#include <map>

#include "collectives/text/numbers.hpp"

namespace tutti::observe {

namespace {

std::string three_digits(double value, const char* unit) {
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fixed(value, decimals) + " " + unit;
}

}  // namespace

std::string bytes_to_string(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return three_digits(value, unit);
}

std::string seconds_to_string(double seconds) {
  if (seconds >= 0.9995) return three_digits(seconds, "s");
  if (seconds >= 0.9995e-3) return three_digits(seconds * 1e3, "ms");
  return three_digits(seconds * 1e6, "us");
}

std::string call_to_string(const std::string& call, const std::vector<Key>& keys) {
  constexpr std::size_t kShown = 4;
  if (keys.empty()) return call;
  if (keys.size() == 1) return call + " of key " + to_string(keys.front());
  std::string text = call + " of " + std::to_string(keys.size()) + " keys: ";
  for (std::size_t i = 0; i < std::min(kShown, keys.size()); ++i) {
    text += (i == 0 ? "" : ", ") + to_string(keys[i]);
  }
  return keys.size() > kShown ? text + ", ..." : text;
}

std::string last_to_string(const CallStatistics& call) {
  if (call.last.empty() || call.calls == 0) return {};
  const LastRank& most = call.last.front();
  const double share = static_cast<double>(most.calls) / static_cast<double>(call.calls);
  return "rank " + std::to_string(most.rank) + " in " + fixed(100 * share, 0) + " %";
}

std::string hidden_to_string(const Statistics& statistics) {
  double busy = 0;
  double waited = 0;
  for (const CallStatistics& one : statistics.calls) {
    if (one.call == "async_wait") waited += one.seconds;
    const bool carries_out = one.call == "async_agreement" || one.call == "async_batch" ||
                             (one.call == "allreduce_async" && one.keys.empty());
    if (carries_out) busy += one.seconds;
  }
  if (busy <= 0) return {};
  const std::string share = fixed(100 * collectives::hidden_share(busy, waited), 0) + " %";
  return "asynchronous calls took " + seconds_to_string(busy) + ", of which " + share +
         " was hidden behind the program's own work";
}

std::string columns(std::initializer_list<std::string> words) {
  constexpr std::size_t kWidth = 12;
  std::string text;
  for (const std::string& word : words) {
    text += std::string(word.size() < kWidth ? kWidth - word.size() : 1, ' ') + word;
  }
  return text;
}

}  // namespace tutti::observe

namespace tutti {

namespace {

void sort_by_seconds(auto& list) {
  std::ranges::stable_sort(
      list, [](const auto& left, const auto& right) { return left.seconds > right.seconds; });
}

CallStatistics in_seconds(const collectives::CallTotals& totals, double seconds_per_tick) {
  const auto seconds = [&](std::uint64_t ticks) {
    return static_cast<double>(ticks) * seconds_per_tick;
  };
  CallStatistics calls{.call = totals.call,
                       .keys = totals.keys,
                       .calls = totals.calls,
                       .bytes = totals.bytes,
                       .seconds = seconds(totals.ticks),
                       .waiting_seconds = seconds(totals.waited_ticks)};
  for (const auto& [rank, late] : totals.late) {
    calls.last.push_back({rank, late.calls, seconds(late.waited_ticks)});
  }
  std::ranges::sort(calls.last, {}, &LastRank::rank);
  sort_by_seconds(calls.last);
  return calls;
}

}  // namespace

Statistics statistics_of(const collectives::StatisticsCollector& collector, int rank) {
  // Must be first, so that no call seems to last longer.
  const double seconds_per_tick = collector.seconds_per_tick();
  Statistics statistics{.rank = rank, .seconds = collector.seconds(), .calls = {}};
  for (const auto& totals : collector.all()) {
    if (totals->calls > 0) statistics.calls.push_back(in_seconds(*totals, seconds_per_tick));
  }
  sort_by_seconds(statistics.calls);
  return statistics;
}

CallStatistics Statistics::total(std::string_view call) const {
  CallStatistics sum{.call = std::string(call), .keys = {}};
  std::map<int, LastRank> last;
  for (const CallStatistics& one : calls) {
    if (!call.empty() && one.call != call) continue;
    sum.calls += one.calls;
    sum.bytes += one.bytes;
    sum.seconds += one.seconds;
    sum.waiting_seconds += one.waiting_seconds;
    for (const LastRank& late : one.last) {
      LastRank& all = last[late.rank];
      all.rank = late.rank;
      all.calls += late.calls;
      all.seconds += late.seconds;
    }
  }
  for (const auto& [number, late] : last) sum.last.push_back(late);
  sort_by_seconds(sum.last);
  return sum;
}

std::string to_string(const Statistics& statistics, std::size_t most_lines) {
  std::string text =
      "rank " + std::to_string(statistics.rank) + ", " +
      observe::seconds_to_string(statistics.seconds) +
      ":\n       calls       bytes        time     waiting  call, and who came last\n";
  for (std::size_t i = 0; i < std::min(most_lines, statistics.calls.size()); ++i) {
    const CallStatistics& one = statistics.calls[i];
    text += observe::columns({std::to_string(one.calls), observe::bytes_to_string(one.bytes),
                              observe::seconds_to_string(one.seconds),
                              observe::seconds_to_string(one.waiting_seconds)});
    text += "  " + observe::call_to_string(one);
    if (!one.last.empty()) text += "; " + observe::last_to_string(one);
    text += "\n";
  }
  if (statistics.calls.size() > most_lines) {
    text += "  and " + std::to_string(statistics.calls.size() - most_lines) + " more\n";
  }
  const std::string hidden = observe::hidden_to_string(statistics);
  return hidden.empty() ? text : text + "  " + hidden + "\n";
}

}  // namespace tutti
