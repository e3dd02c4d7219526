// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/statistics.hpp"

#include <algorithm>
#include <map>

#include "runtime/observe/text.hpp"

namespace tutti {

namespace {

void sort_by_seconds(auto& list) {
  std::ranges::stable_sort(
      list, [](const auto& left, const auto& right) { return left.seconds > right.seconds; });
}

CallStatistics in_seconds(const collectives::Tally& tally, double seconds_per_tick) {
  const auto seconds = [&](std::uint64_t ticks) {
    return static_cast<double>(ticks) * seconds_per_tick;
  };
  CallStatistics calls{.call = tally.call,
                       .keys = tally.keys,
                       .calls = tally.calls,
                       .bytes = tally.bytes,
                       .seconds = seconds(tally.ticks),
                       .waiting_seconds = seconds(tally.waited_ticks)};
  for (const auto& [rank, late] : tally.late) {
    calls.last.push_back({rank, late.calls, seconds(late.waited_ticks)});
  }
  std::ranges::sort(calls.last, {}, &LastRank::rank);
  sort_by_seconds(calls.last);
  return calls;
}

}  // namespace

Statistics statistics_of(const collectives::Meter& meter, int rank) {
  Statistics statistics{.rank = rank, .seconds = meter.seconds(), .calls = {}};
  const double seconds_per_tick = meter.seconds_per_tick();
  for (const auto& tally : meter.tallies()) {
    if (tally->calls > 0) statistics.calls.push_back(in_seconds(*tally, seconds_per_tick));
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
  return text;
}

}  // namespace tutti
