// SPDX-License-Identifier: Apache-2.0
// Statistics: the cost of this rank's calls, and the ranks that it waited for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/export.h"
#include "tutti/key.hpp"

namespace tutti {

/// A rank that others waited for.
struct LastRank {
  int rank = 0;
  std::uint64_t calls = 0;  ///< calls in which it arrived last
  double seconds = 0;       ///< time that this rank waited in these calls
};

/// Calls of one kind. A store's push and pull are counted apart for each list of keys.
struct CallStatistics {
  std::string call;       ///< "push", "pull", "barrier", "allreduce" and so on; pushpull is a push
  std::vector<Key> keys;  ///< distinct, in the order of their updates; empty for other calls
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< this rank's values, summed over the calls
  double seconds = 0;       ///< from the beginning to the end of the calls
  /// The part from this rank's announcement until it knew that every rank had announced the call.
  double waiting_seconds = 0;
  /// The ranks that arrived last; the one that was waited for longest comes first. A rank that did
  /// not wait was the last one itself.
  std::vector<LastRank> last{};
};

/// The cost of this rank's calls since its communicator was made. Counting is always on; it costs
/// some ten nanoseconds a call.
struct TUTTI_API Statistics {
  int rank = 0;
  double seconds = 0;                 ///< since the communicator was made
  std::vector<CallStatistics> calls;  ///< the longest seconds first

  /// The sum of all calls of this name, without keys; of all calls for an empty name.
  [[nodiscard]] CallStatistics total(std::string_view call = {}) const;
};

/// A table for people, a line per kind of call, at most `most_lines` of them.
TUTTI_API std::string to_string(const Statistics& statistics, std::size_t most_lines = 20);

}  // namespace tutti
