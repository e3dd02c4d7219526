// SPDX-License-Identifier: Apache-2.0
// The public statistics, built from the engine's counters, and their text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "tutti/statistics.hpp"

#include "collectives/engine/statistics_collector.hpp"

namespace tutti {

Statistics statistics_of(const collectives::StatisticsCollector& statistics, int rank);

}  // namespace tutti

namespace tutti::observe {

/// Formats bytes with powers of 1000: "1.5 MB", "12 B".
std::string bytes_to_string(std::uint64_t bytes);
/// Formats a time: "12.3 s", "4.56 ms", "789 us".
std::string seconds_to_string(double seconds);
/// Describes a call: "push of key 3", "push of 161 keys: 0, 1, 2, ...", "barrier".
std::string call_to_string(const std::string& call, const std::vector<Key>& keys);
inline std::string call_to_string(const CallStatistics& call) {
  return call_to_string(call.call, call.keys);
}
/// Names the rank that was waited for most: "last rank 3 in 90 % of the calls".
std::string last_to_string(const CallStatistics& call);
/// Describes a rank's asynchronous calls: "asynchronous calls took 1.20 s, 93 % of it hidden ...";
/// empty if there were none.
std::string hidden_to_string(const Statistics& statistics);
/// Right-aligns words in columns of twelve characters.
std::string columns(std::initializer_list<std::string> words);

}  // namespace tutti::observe
