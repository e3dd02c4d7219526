// SPDX-License-Identifier: Apache-2.0
// The public statistics, made from what the engine counts, and as text.
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

/// "1.5 MB", powers of 1000; "12 B".
std::string bytes_to_string(std::uint64_t bytes);
/// "12.3 s", "4.56 ms", "789 us".
std::string seconds_to_string(double seconds);
/// "push of key 3", "push of 161 keys: 0, 1, 2, ...", "barrier".
std::string call_to_string(const std::string& call, const std::vector<Key>& keys);
inline std::string call_to_string(const CallStatistics& call) {
  return call_to_string(call.call, call.keys);
}
/// "last rank 3 in 90 % of the calls", for the rank that was waited for most.
std::string last_to_string(const CallStatistics& call);
/// "asynchronous calls took 1.20 s, 93 % of it hidden ...", of one rank; empty without such calls.
std::string hidden_to_string(const Statistics& statistics);
/// Right-aligns words in columns of twelve characters.
std::string columns(std::initializer_list<std::string> words);

}  // namespace tutti::observe
