// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "tutti/error.hpp"

#include "collectives/text/numbers.hpp"
#include "runtime/base/output.hpp"
#include "runtime/observe/statistics.hpp"

namespace tutti::observe {

namespace {

using nlohmann::json;

constexpr std::size_t kMostCalls = 30;
constexpr std::size_t kMostShown = 5;

/// The distribution of a number over ranks.
struct Spread {
  double least = 0;
  double most = 0;
  double sum = 0;
  std::size_t count = 0;

  void add(double value) {
    least = count == 0 ? value : std::min(least, value);
    most = std::max(most, value);
    sum += value;
    ++count;
  }
  [[nodiscard]] double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

/// The calls of one kind on all ranks.
struct Row {
  std::uint64_t calls = 0;  ///< the largest number that a rank made
  std::uint64_t bytes = 0;
  Spread time;
  Spread waiting;
  std::map<int, double> waited_for;
};

struct Culprit {
  std::uint64_t calls = 0;  ///< total over the ranks that saw it arrive last
  double seconds = 0;
};

using Rows = std::map<std::pair<std::string, std::vector<Key>>, Row>;

Rows rows_of(const std::vector<Statistics>& ranks) {
  Rows rows;
  for (const Statistics& rank : ranks) {
    for (const CallStatistics& calls : rank.calls) {
      Row& row = rows[{calls.call, calls.keys}];
      row.calls = std::max(row.calls, calls.calls);
      row.bytes = std::max(row.bytes, calls.bytes);
      row.time.add(calls.seconds);
      row.waiting.add(calls.waiting_seconds);
      for (const LastRank& late : calls.last) row.waited_for[late.rank] += late.seconds;
    }
  }
  return rows;
}

/// Returns the rank that was waited for most, and its share of the waiting time: "rank 3 (90 %)".
std::string most_waited_for(const Row& row) {
  const auto most =
      std::ranges::max_element(row.waited_for, {}, [](const auto& one) { return one.second; });
  if (most == row.waited_for.end() || row.waiting.sum <= 0) return "-";
  return "rank " + std::to_string(most->first) + " (" +
         fixed(100 * most->second / row.waiting.sum, 0) + " %)";
}

std::string lines_of_calls(const std::vector<Statistics>& ranks) {
  const Rows rows = rows_of(ranks);
  std::vector<const Rows::value_type*> order;
  for (const auto& row : rows) order.push_back(&row);
  std::ranges::stable_sort(order, [](const auto* left, const auto* right) {
    return left->second.time.sum > right->second.time.sum;
  });
  std::string text =
      columns({"calls", "bytes", "time: min", "mean", "max", "wait: min", "mean", "max"}) +
      "  most waited for  call\n";
  for (std::size_t i = 0; i < std::min(kMostCalls, order.size()); ++i) {
    const auto& [name, row] = *order[i];
    std::string who = most_waited_for(row);
    who.resize(std::max<std::size_t>(who.size(), 15), ' ');
    text += columns({std::to_string(row.calls), bytes_to_string(row.bytes),
                     seconds_to_string(row.time.least), seconds_to_string(row.time.mean()),
                     seconds_to_string(row.time.most), seconds_to_string(row.waiting.least),
                     seconds_to_string(row.waiting.mean()), seconds_to_string(row.waiting.most)}) +
            "  " + who + "  " + call_to_string(name.first, name.second) + "\n";
  }
  if (order.size() > kMostCalls) {
    text += "  and " + std::to_string(order.size() - kMostCalls) + " more kinds of calls\n";
  }
  return text;
}

std::string lines_of_ranks(const std::vector<Statistics>& ranks,
                           const collectives::RankNames& names) {
  std::map<int, Culprit> culprits;
  for (const Statistics& rank : ranks) {
    for (const LastRank& late : rank.total().last) {
      culprits[late.rank].calls += late.calls;
      culprits[late.rank].seconds += late.seconds;
    }
  }
  std::vector<std::pair<int, Culprit>> order(culprits.begin(), culprits.end());
  std::ranges::stable_sort(order, [](const auto& left, const auto& right) {
    return left.second.seconds > right.second.seconds;
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostShown, order.size()); ++i) {
    const auto& [rank, culprit] = order[i];
    if (culprit.seconds <= 0) break;
    const auto count = static_cast<double>(ranks.size());
    text += "  rank " + std::to_string(rank) + " (host " + names.host_of(rank) + ") came last in " +
            std::to_string(std::llround(static_cast<double>(culprit.calls) / count)) +
            " calls; each rank waited " + seconds_to_string(culprit.seconds / count) +
            " for it, on average\n";
  }
  return text;
}

/// Describes the hidden time on the first rank that made asynchronous calls.
std::string line_of_hidden(const std::vector<Statistics>& ranks) {
  for (const Statistics& rank : ranks) {
    const std::string hidden = hidden_to_string(rank);
    if (!hidden.empty()) return "  on rank " + std::to_string(rank.rank) + ", " + hidden + "\n";
  }
  return {};
}

json to_json_value(const CallStatistics& calls) {
  json keys = json::array();
  for (const Key& key : calls.keys) {
    keys.push_back(key.is_string() ? json(key.text()) : json(key.number()));
  }
  json last = json::array();
  for (const LastRank& late : calls.last) last.push_back({late.rank, late.calls, late.seconds});
  return {calls.call,    std::move(keys),       calls.calls,    calls.bytes,
          calls.seconds, calls.waiting_seconds, std::move(last)};
}

CallStatistics from_json_value(const json& value) {
  CallStatistics calls{.call = value.at(0), .keys = {}};
  for (const json& key : value.at(1)) {
    if (key.is_string()) {
      calls.keys.emplace_back(key.get<std::string>());
    } else {
      calls.keys.emplace_back(key.get<std::int64_t>());
    }
  }
  calls.calls = value.at(2);
  calls.bytes = value.at(3);
  calls.seconds = value.at(4);
  calls.waiting_seconds = value.at(5);
  for (const json& late : value.at(6)) calls.last.push_back({late.at(0), late.at(1), late.at(2)});
  return calls;
}

}  // namespace

std::string to_json(const Statistics& statistics) {
  json calls = json::array();
  for (const CallStatistics& one : statistics.calls) calls.push_back(to_json_value(one));
  return json{statistics.rank, statistics.seconds, std::move(calls)}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

Statistics from_json(const std::string& text) {
  try {
    const json value = json::parse(text);
    Statistics statistics{.rank = value.at(0), .seconds = value.at(1), .calls = {}};
    for (const json& one : value.at(2)) statistics.calls.push_back(from_json_value(one));
    return statistics;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::invalid_argument,
                std::string("statistics of another rank cannot be read: ") + error.what());
  }
}

std::string summary_table(const std::vector<Statistics>& ranks, const collectives::RankNames& names,
                          int group) {
  double seconds = 0;
  for (const Statistics& rank : ranks) seconds = std::max(seconds, rank.seconds);
  return "tutti: statistics of " + std::to_string(ranks.size()) +
         (ranks.size() == 1 ? " rank, " : " ranks, ") +
         (group == 0 ? "" : "store or communicator " + std::to_string(group + 1) + ", ") +
         seconds_to_string(seconds) +
         "; bytes and times are of one rank: least, mean and most over the ranks\n" +
         lines_of_calls(ranks) + lines_of_ranks(ranks, names) + line_of_hidden(ranks);
}

void print_summary(const std::string& target, const std::string& table) {
  if (target == "1") {
    std::fputs(table.c_str(), stderr);
  } else {
    write_output(target, table);
  }
}

}  // namespace tutti::observe
