// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/text.hpp"

namespace apps::benchmark {

std::string time_text(double microseconds) {
  if (microseconds < 100.0) return format("%.2f", microseconds);
  return format(microseconds < 10000.0 ? "%.1f" : "%.0f", microseconds);
}

std::string rate_text(double gigabytes_per_second) {
  if (gigabytes_per_second < 0.1) return format("%.4f", gigabytes_per_second);
  return format(gigabytes_per_second < 99.95 ? "%#.3g" : "%.0f", gigabytes_per_second);
}

}  // namespace apps::benchmark
