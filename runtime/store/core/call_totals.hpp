// SPDX-License-Identifier: Apache-2.0
// Statistics of a store's calls: totals for each call and list of keys.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/engine/statistics_collector.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// The totals of a call for the keys of these items, which `key_of` gives. The same keys in another
/// order are another list.
template <class Items, class KeyOf>
collectives::CallTotals& totals_of(collectives::StatisticsCollector& statistics,
                                   std::string_view call, const Items& items, KeyOf key_of) {
  Digest id;
  id.add(call);
  for (const auto& item : items) id.add(key_of(item));
  return statistics.totals_for(id.value(), [&] {
    collectives::CallTotals totals{.call = std::string(call), .keys = {}};
    for (const auto& item : items) totals.keys.push_back(key_of(item));
    return totals;
  });
}

inline collectives::CallTotals& totals_of(collectives::StatisticsCollector& statistics,
                                          std::string_view call, std::span<Entry* const> entries) {
  return totals_of(statistics, call, entries,
                   [](const Entry* entry) -> const Key& { return entry->key; });
}

/// The bytes that one value of each key has in all.
inline std::uint64_t bytes_of(std::span<Entry* const> entries) {
  std::uint64_t bytes = 0;
  for (const Entry* entry : entries) bytes += entry->replica.size_bytes();
  return bytes;
}

}  // namespace tutti
