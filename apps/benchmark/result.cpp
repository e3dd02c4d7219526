// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/result.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace apps::benchmark {

double percentile(std::span<const double> sorted, double percent) {
  const double nearest = std::ceil(percent / 100.0 * static_cast<double>(sorted.size()));
  const auto place = static_cast<std::size_t>(std::max(nearest, 1.0));
  return sorted[std::min(place, sorted.size()) - 1];
}

Times summarize(std::vector<double> seconds) {
  constexpr double kMicroseconds = 1e6;
  std::sort(seconds.begin(), seconds.end());
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return {.p50 = percentile(seconds, 50.0) * kMicroseconds,
          .avg = sum / static_cast<double>(seconds.size()) * kMicroseconds,
          .min = seconds.front() * kMicroseconds,
          .p99 = percentile(seconds, 99.0) * kMicroseconds,
          .max = seconds.back() * kMicroseconds};
}

const Result* find_result(const Row& row, const Contender& contender) {
  for (const auto& result : row.results) {
    if (result && result->backend == contender.backend && result->buffers == contender.buffers &&
        result->in_place == contender.in_place) {
      return &*result;
    }
  }
  return nullptr;
}

std::optional<double> ratio(const Row& row, const Contender& own, const Contender& other) {
  const Result* const divisor = find_result(row, own);
  const Result* const dividend = find_result(row, other);
  if (divisor == nullptr || dividend == nullptr) return std::nullopt;
  if (!(divisor->time_us.p50 > 0.0)) return std::nullopt;
  return dividend->time_us.p50 / divisor->time_us.p50;
}

std::uint64_t count_wrong(std::span<const Row> rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) {
    for (const auto& result : row.results) wrong += result ? result->wrong.value_or(0) : 0;
  }
  return wrong;
}

}  // namespace apps::benchmark
