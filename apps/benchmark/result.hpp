// SPDX-License-Identifier: Apache-2.0
// The results of measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace apps::benchmark {

/// Times in microseconds. Each iteration's time is the longest over the ranks.
struct Times {
  double p50 = 0.0;
  double avg = 0.0;  ///< mean
  double min = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

/// The smallest value that at least `percent` of the values do not exceed (nearest rank).
/// `sorted` is not empty.
double percentile(std::span<const double> sorted, double percent);

Times summarize(std::vector<double> seconds);

/// The result of one collective, on one backend, at one size.
struct Result {
  std::string collective;
  std::string backend;
  std::string buffers;
  bool in_place = false;
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string type;
  std::string redop;  ///< "none" where elements are not combined
  int root = 0;
  std::size_t iterations = 0;
  Times time_us;
  double algbw_gbs = 0.0;              ///< bytes / p50, 1 GB = 10^9 bytes
  double busbw_gbs = 0.0;              ///< algbw times the collective's factor
  std::optional<std::uint64_t> wrong;  ///< elements over all ranks; unset: not checked
};

/// One of the calls that are measured in turn.
struct Contender {
  std::string backend;
  std::string buffers;  ///< "store", "user" or "gpu"
  bool in_place = false;
};

/// One line of the table: a result per contender, in the order of the options; unset if there is
/// none.
struct Row {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string type;
  std::string redop;
  int root = 0;
  std::vector<std::optional<Result>> results;
  std::optional<std::size_t> packed_bytes{};  ///< size of `bytes` under Tutti's compression
};

/// The result of a contender, or nullptr.
const Result* find_result(const Row& row, const Contender& contender);

/// The time of `other` as a multiple of that of `own`; unset if the row does not have both.
std::optional<double> ratio(const Row& row, const Contender& own, const Contender& other);

/// The number of wrong elements in all rows.
std::uint64_t count_wrong(std::span<const Row> rows);

/// The memory's own speed: an addition of two arrays into a third, on all ranks at once.
struct MemorySpeed {
  double per_rank_gbs = 0.0;  ///< mean over the ranks
  double total_gbs = 0.0;
  std::size_t array_bytes = 0;  ///< each of a rank's three arrays
  bool exceeds_cache = true;    ///< false: this may be the speed of the last-level cache
};

}  // namespace apps::benchmark
